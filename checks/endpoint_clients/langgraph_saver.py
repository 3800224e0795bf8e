"""langgraph-checkpoint-aws: a graph whose checkpoints are in a table. They are items of one key."""

import operator
import os
from typing import Annotated, TypedDict

from langgraph.graph import START, StateGraph
from langgraph_checkpoint_aws import DynamoDBSaver
from story import ORDERS, PAGE, same

THREAD = {"configurable": {"thread_id": "thread"}}


class State(TypedDict):
    turns: Annotated[list, operator.add]


def check(growing):
    saver = DynamoDBSaver(os.environ["TABLE_NAME"])
    builder = StateGraph(State)
    builder.add_node("reply", lambda state: {"turns": [len(state["turns"])]})
    builder.add_edge(START, "reply")
    graph, turns = builder.compile(checkpointer=saver), []

    def talk():
        turns.extend([len(turns), len(turns) + 1])
        same(graph.invoke({"turns": [turns[-2]]}, THREAD)["turns"], turns, "the turns")

    def history(after_two=lambda: None):
        found, pages, before = [], 0, None
        while page := list(graph.get_state_history(THREAD, limit=PAGE, before=before)):
            found, pages, before = found + page, pages + 1, page[-1].config
            if pages == 2:
                after_two()
        parents = [state.config for state in found[1:]] + [None]
        same([state.parent_config for state in found], parents, "the history")
        # Each turn makes three checkpoints.
        same(len(found), len(turns) // 2 * 3, "the length of the history")

    for _ in range(8):
        talk()
    growing("CHECKPOINT_thread", talk)
    growing("CHECKPOINT_thread", talk)
    history(after_two=lambda: growing("CHECKPOINT_thread", history))

    # The saver ignores that a write is there already, by a condition.
    last = graph.get_state(THREAD).config
    key, first, second = (f"WRITES_thread##{last['configurable']['checkpoint_id']}", "first", "second")
    writes = {value: [(f"channel {order}", value) for order in ORDERS] for value in (first, second)}
    saver.put_writes(last, writes[first], "task")
    for _ in range(3):
        growing(key, lambda: saver.put_writes(last, writes[second], "task"))
    right = [("task", *write) for write in writes[first]]
    same(sorted(saver.get_tuple(last).pending_writes), right, "the writes of a task")

    saver.delete_thread("thread")
    same(graph.get_state(THREAD).values, {}, "the state of a deleted thread")
    return "turns of a conversation, its history by pages, writes of a task, the thread's deletion"
