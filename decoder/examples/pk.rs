fn main() {
    let f = std::env::args().nth(1).unwrap();
    let data = std::fs::read(f).unwrap();
    let mut p = backtrail_pt::Parser::new(&data);
    let mut v = vec![];
    p.sync_forward();
    for x in p { match x { Ok((o, backtrail_pt::Packet::Pad)) => {let _=o;}, other => v.push(format!("{other:x?}")) } }
    for l in v.iter().rev().take(25).rev() { println!("{l}"); }
}
