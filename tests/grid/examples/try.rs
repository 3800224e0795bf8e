use policy_grid::*;
use std::time::Instant;
fn main() {
    let a: Vec<f64> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let mut s = Scenario::open(a[0], a[1] as u32);
    s.scale = a[2] as u32;
    s.seconds = a[3] as u32;
    for seed in 1..=a[4] as u64 {
        s.seed = seed;
        let t = Instant::now();
        let o = run(&s);
        println!("seed {seed}: relief {:?} accepted {:.4} width {} changes {:?} short {:?} attempts {:?} in {:?}", o.relieved_after(), o.accepted(), o.width(), o.changes, o.short_after, o.attempts, t.elapsed());
        if std::env::var_os("SECONDS").is_some() { for (i, x) in o.seconds.iter().enumerate() { println!("{i} {x:?}"); } }
    }
}
