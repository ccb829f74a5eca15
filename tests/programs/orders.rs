//! An order book: orders come and go, and are found by their number.
//!
//! Wrong: `cancel` moves the last order into the place that is freed, and leaves the moved one's entry as it was.

mod book {
    use std::collections::BTreeMap;

    pub enum Side {
        Buy,
        Sell { short: bool },
    }

    pub struct Order {
        pub number: u32,
        pub side: Side,
        pub price: u64,
        pub left: u64,
    }

    #[derive(Default)]
    pub struct Book {
        orders: Vec<Order>,
        places: BTreeMap<u32, usize>,
    }

    impl Book {
        pub fn add(&mut self, order: Order) {
            self.places.insert(order.number, self.orders.len());
            self.orders.push(order);
        }

        pub fn cancel(&mut self, number: u32) -> Option<Order> {
            let place = self.places.remove(&number)?;
            Some(self.orders.swap_remove(place))
        }

        pub fn fill(&mut self, number: u32, quantity: u64) -> Option<u64> {
            let place = *self.places.get(&number)?;
            let order = &mut self.orders[place];
            order.left = order.left.saturating_sub(quantity);
            Some(order.left)
        }

        /// What all would cost to buy that is for sale, in hundredths; what is sold short costs half.
        pub fn for_sale(&self) -> u64 {
            let cost = |order: &Order| match order.side {
                Side::Buy => 0,
                Side::Sell { short: true } => order.price * order.left / 2,
                Side::Sell { short: false } => order.price * order.left,
            };
            self.orders.iter().map(cost).sum()
        }
    }
}

mod feed {
    use super::book::{Book, Order, Side};

    pub enum Event {
        New(Order),
        Cancel(u32),
        Fill { number: u32, quantity: u64 },
    }

    /// `N number buy|sell|short price quantity`, `C number` or `F number quantity`.
    pub fn parse(line: &str) -> Option<Event> {
        let mut words = line.split_whitespace();
        let kind = words.next()?;
        let number = words.next()?.parse().ok()?;
        match kind {
            "N" => {
                let side = match words.next()? {
                    "buy" => Side::Buy,
                    other => Side::Sell {
                        short: other == "short",
                    },
                };
                let price = words.next()?.parse().ok()?;
                let left = words.next()?.parse().ok()?;
                Some(Event::New(Order {
                    number,
                    side,
                    price,
                    left,
                }))
            }
            "C" => Some(Event::Cancel(number)),
            _ => Some(Event::Fill {
                number,
                quantity: words.next()?.parse().ok()?,
            }),
        }
    }

    pub fn apply(book: &mut Book, event: Event) {
        match event {
            Event::New(order) => book.add(order),
            Event::Cancel(number) => drop(book.cancel(number)),
            Event::Fill { number, quantity } => drop(book.fill(number, quantity)),
        }
    }
}

fn main() {
    let mut lines = Vec::new();
    for number in 1..=10 {
        let side = ["buy", "sell", "short"][number % 3];
        lines.push(format!("N {number} {side} {} {}", 9050 + number, number * 10));
    }
    lines.extend((1..=6).map(|number| format!("F {number} 5")));
    lines.push("C 3".to_owned());
    lines.extend((7..=10).map(|number| format!("F {number} 5")));
    let mut book = book::Book::default();
    for line in &lines {
        if let Some(event) = feed::parse(line) {
            feed::apply(&mut book, event);
        }
    }
    println!("for sale: {}", book.for_sale());
}
