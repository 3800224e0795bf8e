use policy_grid::*;
use std::time::Instant;
fn arg(n: usize) -> String { std::env::args().nth(n).unwrap_or_default() }
fn num(n: usize) -> f64 { arg(n).parse().unwrap_or(0.0) }
fn show(name: &str, outs: &[Outcome], t: Instant, runs: usize) {
    let n = outs.len() as f64;
    let rel: Vec<f64> = outs.iter().map(|o| o.relieved_after().unwrap_or(f64::INFINITY)).collect();
    let acc: Vec<f64> = outs.iter().map(|o| o.accepted() * 100.0).collect();
    let mut w: Vec<u32> = outs.iter().map(|o| o.width()).collect(); w.sort_unstable();
    let fin: Vec<f64> = rel.iter().copied().filter(|r| r.is_finite()).collect();
    let short: Vec<f64> = outs.iter().filter_map(|o| o.short_after).collect();
    let scnt = short.len(); let smax = short.iter().copied().fold(0.0, f64::max);
    let late = outs.iter().map(|o| o.throttled_from(o.seconds.len() * 2 / 3)).sum::<f64>() / n;
    let rate = outs.iter().map(|o| o.rate_from(o.seconds.len() * 2 / 3)).sum::<f64>() / n;
    println!("{name:34} relief mean {:5.1} max {:5.1} never {} | acc min {:6.2} mean {:6.2} | width {}..{}..{} | short {scnt} max {smax:.0} | late thr {:.3} rate {:.0} | {:.2} s/run", fin.iter().sum::<f64>() / fin.len().max(1) as f64, fin.iter().copied().fold(0.0, f64::max), rel.len() - fin.len(), acc.iter().copied().fold(f64::INFINITY, f64::min), acc.iter().sum::<f64>() / n, w[0], w[w.len()/2], w[w.len()-1], late, rate, t.elapsed().as_secs_f64() * 2.0 / runs as f64);
    if std::env::var_os("CHANGES").is_some() { for o in outs { println!("   {:?} rel {:?} acc {:.4} {:?} short {:?} attempts {:?}", o.width(), o.relieved_after(), o.accepted(), o.changes, o.short_after, o.attempts); } }
    if std::env::var_os("SECONDS").is_some() { for (i, x) in outs[0].seconds.iter().enumerate() { println!("{i} {x:?}"); } }
}
fn go(name: &str, base: Scenario, keys: u64) -> Vec<Outcome> {
    let t = Instant::now();
    let seeds: u64 = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let all: Vec<Scenario> = (seeds..seeds + keys).map(|seed| Scenario { seed, ..base.clone() }).collect();
    let outs = run_all(&all);
    show(name, &outs, t, all.len());
    outs
}
fn main() {
    let mut keys = num(2) as u64;
    if keys == 0 { keys = 3 }
    let timeout = std::env::var("TIMEOUT").ok().and_then(|s| s.parse().ok()).map(std::time::Duration::from_secs_f64);
    let fix = |mut s: Scenario| { if let Some(t) = timeout { s.timeout = t } if let Some(c) = std::env::var("SCALE").ok().and_then(|s| s.parse().ok()) { s.scale = c } if let Some(c) = std::env::var("SECS").ok().and_then(|s| s.parse().ok()) { s.seconds = c } s };
    let opponents = std::env::var_os("OPP").is_some();
    match arg(1).as_str() {
        "open" => for d in if num(3) > 0.0 { vec![num(3)] } else { vec![2_000.0, 5_000.0, 20_000.0, 50_000.0] } { for p in if num(4) > 0.0 { vec![num(4) as u32] } else { vec![4, 8, 20, 64, 200, 1_000] } {
            let s = fix(open(d, p, 40));
            go(&format!("{d} on {p} ours"), s.clone(), keys);
            if opponents { let o = oracle_of(&s, d); go(&format!("{d} on {p} oracle"), o, keys); go(&format!("{d} on {p} doubling"), Scenario { contender: Contender::Doubling, ..s }, keys); }
        } },
        "closed" => for c in [40, 400, 4_000] { for p in [20, 64, 1_000] { for l in [false, true] {
            let (s, d) = closed(c, p, l); let s = fix(s);
            go(&format!("{c} clients on {p} {} ours", if l {"lambda"} else {"one"}), s.clone(), keys);
            if opponents { let o = oracle_of(&s, d); go(&format!("  oracle {d:.0}/s"), o, keys); }
        } } },
        "lambda" => for d in [5_000.0, 20_000.0] { for i in [1_000, 10_000] { for p in [64, 1_000] { go(&format!("{d} on {p}, {i} instances"), fix(lambda(d, i, p)), keys); } } },
        "zipf" => for k in [100, 1_000] { for e in [0.8, 1.1] {
            let s = fix(zipf(k, e, 64, 0.9));
            let outs = go(&format!("zipf {k} {e}"), s.clone(), keys);
            for o in outs { let secs = f64::from(s.seconds); let rate = |u: f64| u * f64::from(s.scale) / secs;
                let cold: Vec<_> = o.keys.iter().filter(|(u, _)| rate(*u) < 250.0).collect(); let grown = cold.iter().filter(|c| c.1 > 1).count(); let most = cold.iter().map(|c| c.1).max();
                println!("   cold {} grown {grown} most {most:?}; all grown {} extra {} acc {:.4}", cold.len(), o.keys.iter().filter(|k| k.1 > 1).count(), o.keys.iter().map(|k| k.1 - 1).sum::<u32>(), o.accepted()); }
        } },
        "special" => {
            for (n, d) in [(3, 6_000.0), (8, 5_000.0), (20, 5_000.0), (100, 5_000.0)] { let o = go(&format!("{n} hot items at {d}"), fix(hot_items(n, d)), keys); println!("   hot items reported {:?}", o.iter().map(|o| o.hot_items_after).collect::<Vec<_>>()); }
            for i in [Items::Kilobytes(4), Items::Kilobytes(20), Items::Kilobytes(100), Items::Mixed] { for p in [64, 1_000] { go(&format!("{i:?} on {p}"), fix(items(i, p)), keys); } }
            for share in [100.0, 200.0, 500.0] { let s = fix(provisioned(share)); go(&format!("provisioned {share}"), s.clone(), keys); if opponents { go("  doubling", Scenario { contender: Contender::Doubling, ..s }, keys); } }
            for p in [64, 1_000] { go(&format!("ramp on {p}"), fix(ramp(p)), keys); }
        },
        _ => {}
    }
}
