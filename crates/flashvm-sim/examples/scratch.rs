use flashvm_core::policy::PolicySpec;
use flashvm_sim::sweep::*;
use flashvm_sim::{Device, ModelKind, trace};
fn main() {
    let mut args = std::env::args().skip(1);
    let policies = PolicySpec::list(&args.next().unwrap()).unwrap();
    let sizes = MemorySize::list(&args.next().unwrap()).unwrap();
    let n = policies.len();
    let verbose = std::env::var("V").is_ok();
    let mut total = vec![0.0; n];
    let mut worst = vec![0.0f64; n];
    let mut wr = vec![0.0; n];
    let mut rd = vec![0.0; n];
    let mut count = 0.0;
    for file in args {
        let t = trace::open(file.as_ref(), None).unwrap();
        let r = References::read(t.granularity(), t).unwrap();
        let jobs: Vec<_> = sizes
            .iter()
            .flat_map(|s| {
                let f = s.frames(r.pages()).unwrap().max(1);
                policies.iter().map(move |&policy| Job {
                    policy,
                    frames: f,
                    sight: Sight::Full,
                })
            })
            .collect();
        let d = Device::new(ModelKind::SlcNand);
        let fig = sweep(&r, &jobs, &d, 1, &Default::default()).unwrap();
        println!(
            "{file}: {} refs {} pages {} written",
            r.len(),
            r.pages(),
            r.pages_written()
        );
        for (i, chunk) in fig.chunks(n).enumerate() {
            let base = chunk[0].counts;
            let best = chunk.iter().map(|f| f.counts.io_time.0).min().unwrap() as f64;
            count += 1.0;
            let mut line = format!("{:>6}", sizes[i].to_string());
            for (j, f) in chunk.iter().enumerate() {
                let ratio = f.counts.io_time.0 as f64 / base.io_time.0 as f64;
                total[j] += ratio.ln();
                worst[j] = worst[j].max(f.counts.io_time.0 as f64 / best);
                wr[j] += (f.counts.page_writes.max(1) as f64 / base.page_writes.max(1) as f64).ln();
                rd[j] += (f.counts.page_reads as f64 / base.page_reads as f64).ln();
                line += &format!(" {:.3}", ratio);
            }
            if verbose {
                println!("{line}");
            }
        }
    }
    for j in 0..n {
        println!(
            "{:>16} io {:.3} reads {:.3} writes {:.3} worst-vs-best {:.2}",
            policies[j].to_string(),
            (total[j] / count).exp(),
            (rd[j] / count).exp(),
            (wr[j] / count).exp(),
            worst[j]
        );
    }
}
