//! Deliveries of alerts to a server of this process.

use super::*;
use crate::config::Config;
use crate::database::deliveries::{self, NewDelivery};
use crate::ingest::deliver::Sender;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

/// A receiver of webhooks, which answers with a status.
struct Receiver {
    url: String,
    status: Arc<AtomicU16>,
    bodies: Arc<Mutex<Vec<serde_json::Value>>>,
}

impl Receiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/hook", listener.local_addr().unwrap());
        let status = Arc::new(AtomicU16::new(200));
        let bodies = Arc::new(Mutex::new(Vec::new()));
        let (code, list) = (status.clone(), bodies.clone());
        std::thread::spawn(move || {
            for connection in listener.incoming() {
                let Ok(mut connection) = connection else { return };
                let mut request = Vec::new();
                let mut part = [0; 4096];
                while let Ok(length @ 1..) = connection.read(&mut part) {
                    request.extend_from_slice(&part[..length]);
                    let text = String::from_utf8_lossy(&request);
                    let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                    if let Ok(value) = serde_json::from_str(body) {
                        list.lock().unwrap().push(value);
                        break;
                    }
                }
                let code = code.load(Ordering::SeqCst);
                let answer = format!("HTTP/1.1 {code} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = connection.write_all(answer.as_bytes());
            }
        });
        Self { url, status, bodies }
    }

    fn take(&self) -> Vec<serde_json::Value> {
        std::mem::take(&mut *self.bodies.lock().unwrap())
    }
}

fn sender(hub: &TestHub, url: &str, per_hour: u32) -> Arc<Sender> {
    let config = Config {
        alert: vec![channel(url, per_hour)],
        allowed_addresses: vec!["127.0.0.1".to_owned()],
        ..Config::default()
    };
    Arc::new(Sender::new(hub.database.clone(), &config).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn event_is_sent_once_by_two_hubs() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let receiver = Receiver::start();
        for host in 0..40 {
            hub.run(&format!("web-{host}"), "2.0", START).await;
        }
        for place in 0..5 {
            hub.take(vec![crash(place, place, "2.0", START + 1)]).await;
            hub.store(id(place).as_str(), &format!("function_{place}"), START + 2)
                .await;
        }
        let senders = [0, 1, 2].map(|_| sender(&hub, &receiver.url, 60));
        let now = START + clock::SECOND;
        let mut sent = 0;
        for task in senders.map(|one| tokio::spawn(async move { one.send_due(now).await })) {
            sent += task.await.unwrap().unwrap();
        }
        let mut bodies = receiver.take();
        assert_eq!((sent, bodies.len()), (5, 5), "{}", test.name());
        bodies.sort_by_key(|body| body["report"]["id"].as_str().map(str::to_owned));
        let first = &bodies[0];
        assert_eq!(first["event"], "new");
        assert_eq!(first["hosts"]["text"], "1 of 40 hosts (2.5 %)");
        assert_eq!(first["report"]["host"], "web-0");
        assert_eq!(first["report"]["labels"]["route"], "/close");
        let link = first["group"]["link"].as_str().unwrap();
        assert!(link.starts_with("https://hub.example/g/"), "{link}");
        let states = "SELECT COUNT(*) FROM deliveries WHERE state = 'sent' AND attempts = 1";
        assert_eq!(hub.count(states).await, 5);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_alerts_are_tried_again_and_given_up() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let receiver = Receiver::start();
        receiver.status.store(503, Ordering::SeqCst);
        hub.take(vec![crash(1, 1, "2.0", clock::now())]).await;
        hub.store(id(1).as_str(), "audit", clock::now()).await;
        let alerts = sender(&hub, &receiver.url, 60);
        assert_eq!(alerts.send_due(clock::now()).await.unwrap(), 1);
        let delivery = hub.database.deliveries("hook", 10).await.unwrap().remove(0);
        assert_eq!(delivery.state, "waiting");
        let problem = delivery.problem.unwrap();
        assert!(problem.contains("answered 503"), "{problem}");
        assert_eq!(alerts.send_due(clock::now()).await.unwrap(), 0);
        receiver.status.store(403, Ordering::SeqCst);
        assert_eq!(alerts.send_due(clock::now() + clock::HOUR).await.unwrap(), 1);
        let delivery = hub.database.deliveries("hook", 10).await.unwrap().remove(0);
        assert_eq!((delivery.state.as_str(), delivery.attempts), ("failed", 2));
        let bodies = receiver.take();
        assert_eq!(bodies.len(), 2);
        assert_eq!(bodies[0]["change"], bodies[1]["change"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_beyond_the_limit_are_summarized() {
    for test in TestDatabase::all().await {
        let hub = TestHub::new(&test);
        let receiver = Receiver::start();
        let alerts = sender(&hub, &receiver.url, 2);
        let hour = clock::now().div_euclid(clock::HOUR) * clock::HOUR;
        for place in 0..5 {
            hub.take(vec![crash(place, place, "2.0", hour)]).await;
            hub.store(id(place).as_str(), &format!("function_{place}"), hour)
                .await;
        }
        assert_eq!(alerts.send_due(clock::now()).await.unwrap(), 2);
        assert_eq!(
            hub.count("SELECT COUNT(*) FROM deliveries WHERE state = 'held-back'")
                .await,
            3
        );
        receiver.take();
        // The next hour plans the summary, and the look after it sends it.
        let next = clock::now() + clock::HOUR;
        for _ in 0..3 {
            alerts.send_due(next).await.unwrap();
        }
        let bodies = receiver.take();
        assert_eq!(bodies.len(), 1, "{}: {bodies:?}", test.name());
        assert_eq!(bodies[0]["headline"], "3 more alerts were held back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn message_of_a_dead_hub_is_taken_over() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    let receiver = Receiver::start();
    hub.take(vec![crash(1, 1, "2.0", START)]).await;
    hub.store(id(1).as_str(), "audit", START).await;
    let sending = "UPDATE deliveries SET state = 'sending', attempts = 1, next_try = $1";
    sqlx::query(sending)
        .bind(START + 100)
        .execute(test.database.reader())
        .await
        .unwrap();
    let alerts = sender(&hub, &receiver.url, 60);
    assert_eq!(alerts.send_due(START + 99).await.unwrap(), 0);
    assert_eq!(alerts.send_due(START + 100).await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn test_message_names_its_purpose() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    let receiver = Receiver::start();
    let alerts = sender(&hub, &receiver.url, 1);
    alerts.send_test("hook").await.unwrap();
    assert_eq!(
        receiver.take()[0]["group"]["title"],
        "Test message: this channel works"
    );
    receiver.status.store(500, Ordering::SeqCst);
    let error = alerts.send_test("hook").await.unwrap_err().to_string();
    assert!(error.contains("answered 500"), "{error}");
    let error = alerts.send_test("other").await.unwrap_err().to_string();
    assert_eq!(error, "there is no channel other");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_message_fails_with_a_sentence() {
    let test = TestDatabase::sqlite().await;
    let hub = TestHub::new(&test);
    let new = NewDelivery {
        id: "d",
        change: "c",
        channel: "hook",
        is_summary: false,
        payload: "{",
        created: START,
    };
    let done: crate::Result<()> =
        transact!(hub.database, connection => { deliveries::insert(connection, &new).await });
    done.unwrap();
    let alerts = sender(&hub, "http://127.0.0.1:1/", 60);
    assert_eq!(alerts.send_due(START).await.unwrap(), 1);
    let delivery = hub.database.deliveries("hook", 1).await.unwrap().remove(0);
    assert_eq!(delivery.state, "failed");
    assert!(
        delivery
            .problem
            .unwrap()
            .starts_with("the stored message is damaged")
    );
}
