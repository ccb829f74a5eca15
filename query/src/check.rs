//! The checks of the SQL text before it is planned.

use crate::error::sentence;
use crate::{Error, Result};
use datafusion::logical_expr::sqlparser::dialect::GenericDialect;
use datafusion::sql::parser::{DFParserBuilder, Statement};
use datafusion::sql::sqlparser::ast::{
    Query, SetExpr, Statement as SqlStatement, TableFactor, Visit, Visitor,
};
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};
use std::ops::ControlFlow;

/// The maximum length of the text.
const MAX_BYTES: usize = 1 << 20;
/// The maximum number of words and operators. Literals and commas are not counted, so that a long
/// list of values is accepted. The planner's recursion is at most as deep.
const MAX_WORDS: usize = 2000;
/// The maximum depth of parentheses and calls.
const MAX_DEPTH: usize = 50;

/// Reads the one SELECT or EXPLAIN of a text.
pub(crate) fn parse(sql: &str) -> Result<Statement> {
    if sql.len() > MAX_BYTES {
        return Err(Error::Sql(format!(
            "it has {} bytes, more than {MAX_BYTES}",
            sql.len()
        )));
    }
    let dialect = GenericDialect {};
    let tokens = Tokenizer::new(&dialect, sql)
        .tokenize()
        .map_err(|error| Error::Sql(sentence(&error.to_string())))?;
    let words = tokens.iter().filter(|token| is_counted(token)).count();
    if words > MAX_WORDS {
        return Err(Error::Sql(format!(
            "it has {words} words and operators, more than {MAX_WORDS}"
        )));
    }
    let mut parser = DFParserBuilder::new(sql)
        .with_dialect(&dialect)
        .with_recursion_limit(MAX_DEPTH)
        .build()
        .map_err(|error| Error::of_engine(&error, 0))?;
    let mut statements = parser
        .parse_statements()
        .map_err(|error| Error::of_engine(&error, 0))?;
    let statement = statements
        .pop_front()
        .ok_or_else(|| Error::Sql("it has no statement".into()))?;
    if !statements.is_empty() {
        return Err(Error::Refused("a second statement".into()));
    }
    check(&statement)?;
    Ok(statement)
}

fn is_counted(token: &Token) -> bool {
    !matches!(
        token,
        Token::Whitespace(_)
            | Token::Comma
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::LParen
            | Token::RParen
            | Token::EOF
    )
}

/// Checks that a statement only reads.
fn check(statement: &Statement) -> Result<()> {
    match statement {
        Statement::Statement(statement) => match &**statement {
            SqlStatement::Query(_) => check_clauses(statement),
            other => Err(Error::Refused(first_words(&other.to_string()))),
        },
        Statement::Explain(explain) => check(&explain.statement),
        other => Err(Error::Refused(first_words(&other.to_string()))),
    }
}

/// Refuses clauses that the engine reads and leaves out, so that the answer would be another one.
fn check_clauses(statement: &SqlStatement) -> Result<()> {
    match statement.visit(&mut UnusedClauses) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(clause) => Err(Error::Sql(format!("{clause} is not supported"))),
    }
}

/// Finds the first such clause.
struct UnusedClauses;

impl UnusedClauses {
    fn of_body(body: &SetExpr) -> Option<&'static str> {
        match body {
            SetExpr::Select(select) => select.prewhere.as_ref().map(|_| "PREWHERE"),
            SetExpr::SetOperation { left, right, .. } => Self::of_body(left).or_else(|| Self::of_body(right)),
            // Inner queries are visited themselves.
            _ => None,
        }
    }
}

impl Visitor for UnusedClauses {
    type Break = &'static str;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        let clause = match query {
            query if !query.locks.is_empty() => Some("FOR UPDATE or FOR SHARE"),
            query if query.settings.is_some() => Some("SETTINGS"),
            query if query.format_clause.is_some() => Some("FORMAT"),
            query => Self::of_body(&query.body),
        };
        clause.map_or(ControlFlow::Continue(()), ControlFlow::Break)
    }

    fn pre_visit_table_factor(&mut self, table: &TableFactor) -> ControlFlow<Self::Break> {
        match table {
            TableFactor::Table { sample: Some(_), .. } => ControlFlow::Break("a sample of a table"),
            TableFactor::Table { with_hints, .. } if !with_hints.is_empty() => {
                ControlFlow::Break("a hint of a table")
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Returns the first two words of a statement.
fn first_words(statement: &str) -> String {
    let words: Vec<&str> = statement.split_whitespace().take(2).collect();
    sentence(&words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn select_and_explain_are_accepted() {
        for sql in [
            "SELECT 1",
            "select * from samples;",
            "WITH a AS (SELECT 1) SELECT * FROM a",
            "EXPLAIN SELECT 1",
            "EXPLAIN ANALYZE SELECT 1",
            "VALUES (1)",
        ] {
            assert!(parse(sql).is_ok(), "{sql}");
        }
    }

    #[test]
    fn statements_that_change_or_read_files_are_refused() {
        for sql in [
            "CREATE TABLE a AS SELECT 1",
            "CREATE EXTERNAL TABLE a STORED AS PARQUET LOCATION '/etc/passwd'",
            "CREATE VIEW a AS SELECT 1",
            "COPY samples TO '/tmp/x.csv'",
            "INSERT INTO samples VALUES (1)",
            "DELETE FROM samples",
            "DROP TABLE samples",
            "SET datafusion.execution.batch_size = 1",
            "RESET ALL",
            "EXPLAIN COPY samples TO '/tmp/x.csv'",
            "SELECT 1; SELECT 2",
            "SHOW TABLES",
        ] {
            let error = parse(sql).unwrap_err();
            assert!(matches!(error, Error::Refused(_)), "{sql}: {error}");
        }
    }

    #[test]
    fn clauses_that_would_be_left_out_are_refused() {
        for (sql, clause) in [
            ("SELECT 1 FROM samples PREWHERE service = 'shop'", "PREWHERE"),
            (
                "SELECT 1 UNION ALL SELECT 2 FROM samples PREWHERE true",
                "PREWHERE",
            ),
            (
                "SELECT * FROM (SELECT 1 FROM samples PREWHERE true) a",
                "PREWHERE",
            ),
            ("SELECT 1 FROM samples TABLESAMPLE (10 PERCENT)", "a sample"),
            ("SELECT 1 FROM samples SETTINGS max_threads = 1", "SETTINGS"),
            ("SELECT 1 FROM samples FOR UPDATE", "FOR UPDATE"),
            ("EXPLAIN SELECT 1 FROM samples WITH (NOLOCK)", "a hint"),
        ] {
            let error = parse(sql).unwrap_err().to_string();
            assert!(
                error.contains(clause) && error.ends_with("is not supported"),
                "{sql}: {error}"
            );
        }
    }

    #[test]
    fn hostile_texts_are_refused_in_one_sentence() {
        let nested = format!("SELECT {}1{}", "(".repeat(5000), ")".repeat(5000));
        let chain = format!("SELECT {}1", "1+".repeat(100_000));
        let long = format!("SELECT '{}'", "x".repeat(MAX_BYTES));
        for sql in [&nested, &chain, &long, "", "SELECT '", "SELEC 1", "\0"] {
            let error = parse(sql).unwrap_err();
            assert_eq!(error.status(), 3, "{error}");
            assert_eq!(error.to_string().lines().count(), 1, "{error}");
        }
    }

    #[test]
    fn long_list_of_values_is_accepted() {
        let list = (0..50_000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        assert!(parse(&format!("SELECT 1 WHERE 1 IN ({list})")).is_ok());
    }
}
