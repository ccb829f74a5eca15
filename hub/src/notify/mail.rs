//! Messages by SMTP.

use super::channel::{MailServer, MailTls, read_secret};
use super::error::DeliveryError;
use super::message::Mail;
use lettre::message::header::{HeaderName, HeaderValue};
use lettre::message::{Mailbox, MultiPart};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use std::time::Duration;

/// The longest time of one command of the protocol.
const COMMAND: Duration = Duration::from_secs(15);
/// The longest time of a mail.
const WHOLE: Duration = Duration::from_secs(60);

/// A client of one mail server.
#[derive(Clone, Debug)]
pub struct Mailer {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    host: String,
}

impl Mailer {
    /// Builds a client. The password is read now.
    ///
    /// # Errors
    /// Fails if the sender's address is invalid, or the password cannot be read. A password for an
    /// unencrypted connection to another machine is refused, too.
    pub fn new(server: &MailServer) -> Result<Self, DeliveryError> {
        let invalid =
            |reason: String| DeliveryError::permanent(format!("mail server {}: {reason}", server.host));
        let from = mailbox(&server.from)?;
        let parameters =
            || TlsParameters::new(server.host.clone()).map_err(|error| invalid(format!("no TLS: {error}")));
        let (tls, port) = match server.tls {
            MailTls::None => (Tls::None, 25),
            MailTls::Starttls => (Tls::Required(parameters()?), 587),
            MailTls::Tls => (Tls::Wrapper(parameters()?), 465),
        };
        let mut builder = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&server.host)
            .port(server.port.unwrap_or(port))
            .tls(tls)
            .timeout(Some(COMMAND));
        if let Some(user) = &server.user {
            let is_local = matches!(server.host.as_str(), "localhost" | "127.0.0.1" | "::1");
            if server.tls == MailTls::None && !is_local {
                return Err(invalid(
                    "a password needs `tls = \"starttls\"` or `\"tls\"`".to_owned(),
                ));
            }
            let Some(file) = &server.password_file else {
                return Err(invalid("`user` needs `password_file`".to_owned()));
            };
            let password = read_secret(file).map_err(|error| invalid(error.to_string()))?;
            builder = builder.credentials(Credentials::new(user.clone(), password));
        }
        Ok(Self {
            transport: builder.build(),
            from,
            host: server.host.clone(),
        })
    }

    /// Sends a mail to all addresses. Repetitions of a delivery have one `Message-ID`, so that
    /// mail programs show one message.
    ///
    /// # Errors
    /// Fails if an address is invalid, or the server cannot be reached or refuses the mail.
    pub async fn send(&self, to: &[String], mail: &Mail, delivery: &str) -> Result<(), DeliveryError> {
        let message = self.message(to, mail, delivery)?;
        let sent = tokio::time::timeout(WHOLE, self.transport.send(message)).await;
        let error = match sent {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error,
            Err(_) => {
                return Err(DeliveryError::temporary(format!(
                    "mail server {} does not answer in time",
                    self.host
                )));
            }
        };
        let text: String = format!("mail server {}: {error}", self.host)
            .chars()
            .take(500)
            .collect();
        let text = text.replace(char::is_control, " ");
        Err(match error.is_permanent() {
            true => DeliveryError::permanent(text),
            false => DeliveryError::temporary(text),
        })
    }

    fn message(&self, to: &[String], mail: &Mail, delivery: &str) -> Result<Message, DeliveryError> {
        let domain = self.from.email.domain();
        let mut builder = Message::builder()
            .from(self.from.clone())
            .subject(mail.subject.clone())
            .message_id(Some(format!("<{delivery}@{domain}>")))
            // Programs that answer mail do not answer this one.
            .raw_header(HeaderValue::new(
                HeaderName::new_from_ascii_str("Auto-Submitted"),
                "auto-generated".to_owned(),
            ));
        for address in to {
            builder = builder.to(mailbox(address)?);
        }
        builder
            .multipart(MultiPart::alternative_plain_html(
                mail.text.clone(),
                mail.html.clone(),
            ))
            .map_err(|error| DeliveryError::permanent(format!("the mail cannot be built: {error}")))
    }
}

fn mailbox(address: &str) -> Result<Mailbox, DeliveryError> {
    address
        .parse()
        .map_err(|error| DeliveryError::permanent(format!("`{address}` is no mail address: {error}")))
}

#[cfg(test)]
mod tests;
