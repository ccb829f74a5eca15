use backtrail_decoder::*;
use backtrail_pt::*;
use std::sync::Arc;
struct S(Vec<String>);
impl Sink for S {
    fn instruction(&mut self, at: Avma, len: u8, _c: Cofi) { self.0.push(format!("{:x}+{len}", at.0)); }
    fn event(&mut self, e: Event) { if !matches!(e, Event::Time(_)) { self.0.push(format!("{e:x?}")); } }
    fn progress(&mut self, _o: u64) -> std::ops::ControlFlow<()> { std::ops::ControlFlow::Continue(()) }
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let trace = std::fs::read(&a[1]).unwrap();
    let mut image = Image::new();
    let bytes = std::fs::read(&a[2]).unwrap();
    let at = u64::from_str_radix(&a[3], 16).unwrap();
    image.add(Section { start: Avma(at), bytes: Arc::new(bytes) });
    let config = Config { cpu: Some(a[4].parse().unwrap()), ..Config::default() };
    let mut v = vec![];
    for k in EngineKind::ALL { let mut s = S(vec![]); let _ = k.engine().decode(&trace, &image, &config, &mut s); v.push(s.0); }
    let n = v[0].iter().zip(&v[1]).take_while(|(a, b)| a == b).count();
    println!("{} {} same {n}", v[0].len(), v[1].len());
    for x in &v { println!("---"); for l in x.iter().skip(n.saturating_sub(5)).take(12) { println!("{l}"); } }
}
