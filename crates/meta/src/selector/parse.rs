//! The grammar of label selectors in queries.
//!
//! ```text
//! selector    = requirement { "," requirement }
//! requirement = [ "!" ] key | key operator value | key ("in" | "notin") "(" values ")"
//! ```
//! Empty values are legal nearly everywhere (`a=`, `a in (,b)`), and the texts of errors depend on where the parser stands, so this
//! follows upstream's parser step by step.

use super::label::{Operator, Requirement, SelectorError, key_error};
use crate::field::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Error,
    End,
    ClosedParenthesis,
    Comma,
    DoesNotExist,
    DoubleEquals,
    Equals,
    GreaterThan,
    Identifier,
    In,
    LessThan,
    NotEquals,
    NotIn,
    OpenParenthesis,
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_special(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn special_token(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::ClosedParenthesis,
        "," => Token::Comma,
        "!" => Token::DoesNotExist,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::GreaterThan,
        "<" => Token::LessThan,
        "!=" => Token::NotEquals,
        "(" => Token::OpenParenthesis,
        _ => return None,
    })
}

/// Cuts the text into tokens; the last one is always `End`.
fn lex(text: &str) -> Vec<(Token, &str)> {
    let mut tokens = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(is_space);
        let Some(first) = rest.chars().next() else {
            tokens.push((Token::End, ""));
            return tokens;
        };
        let length = if is_special(first) { special_length(rest) } else { rest.find(|c| is_special(c) || is_space(c)).unwrap_or(rest.len()) };
        let (literal, tail) = rest.split_at(length);
        let token = if is_special(first) {
            special_token(literal).unwrap_or(Token::Error)
        } else {
            match literal {
                "in" => Token::In,
                "notin" => Token::NotIn,
                _ => Token::Identifier,
            }
        };
        tokens.push((token, literal));
        rest = tail;
    }
}

/// The longest operator at the start of `rest`, one or two characters.
fn special_length(rest: &str) -> usize {
    if rest.len() >= 2 && rest.is_char_boundary(2) && special_token(&rest[..2]).is_some() { 2 } else { 1 }
}

struct Parser<'a> {
    tokens: Vec<(Token, &'a str)>,
    at: usize,
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    let mut parser = Parser { tokens: lex(text), at: 0 };
    let mut requirements = Vec::new();
    loop {
        match parser.peek() {
            (Token::Identifier | Token::DoesNotExist, _) => {
                let requirement = parser.requirement().map_err(|e| SelectorError(format!("unable to parse requirement: {}", e.0)))?;
                requirements.push(requirement);
                match parser.next() {
                    (Token::End, _) => return Ok(requirements),
                    (Token::Comma, _) => {
                        let (token, literal) = parser.peek();
                        if !matches!(token, Token::Identifier | Token::DoesNotExist) {
                            return Err(SelectorError(format!("found '{literal}', expected: identifier after ','")));
                        }
                    }
                    (_, literal) => return Err(SelectorError(format!("found '{literal}', expected: ',' or 'end of string'"))),
                }
            }
            (Token::End, _) => return Ok(requirements),
            (_, literal) => {
                return Err(SelectorError(format!("found '{literal}', expected: !, identifier, or 'end of string'")));
            }
        }
    }
}

impl<'a> Parser<'a> {
    /// The token under the cursor; `in` and `notin` are identifiers wherever an operator cannot stand.
    fn peek(&self) -> (Token, &'a str) {
        match self.tokens[self.at.min(self.tokens.len() - 1)] {
            (Token::In | Token::NotIn, literal) => (Token::Identifier, literal),
            other => other,
        }
    }

    fn next(&mut self) -> (Token, &'a str) {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn next_operator(&mut self) -> (Token, &'a str) {
        let token = self.tokens[self.at.min(self.tokens.len() - 1)];
        self.at += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, SelectorError> {
        let (mut token, mut key) = self.next();
        let negated = token == Token::DoesNotExist;
        if negated {
            (token, key) = self.next();
        }
        if token != Token::Identifier {
            return Err(SelectorError(format!("found '{key}', expected: identifier")));
        }
        if let Some(error) = key_error(key, &Path::root()) {
            return Err(SelectorError(error.to_string()));
        }
        if negated {
            return Requirement::new(key, Operator::DoesNotExist, Vec::new());
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Requirement::new(key, Operator::Exists, Vec::new());
        }
        let operator = self.operator()?;
        let mut values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => vec![self.exact_value()?],
        };
        values.sort_unstable();
        values.dedup();
        Requirement::new(key, operator, values)
    }

    fn operator(&mut self) -> Result<Operator, SelectorError> {
        Ok(match self.next_operator() {
            (Token::In, _) => Operator::In,
            (Token::NotIn, _) => Operator::NotIn,
            (Token::Equals, _) => Operator::Equals,
            (Token::DoubleEquals, _) => Operator::DoubleEquals,
            (Token::NotEquals, _) => Operator::NotEquals,
            (Token::GreaterThan, _) => Operator::GreaterThan,
            (Token::LessThan, _) => Operator::LessThan,
            (_, literal) => {
                return Err(SelectorError(format!("found '{literal}', expected: in, notin, =, ==, !=, gt, lt")));
            }
        })
    }

    fn values(&mut self) -> Result<Vec<String>, SelectorError> {
        let (token, literal) = self.next();
        if token != Token::OpenParenthesis {
            return Err(SelectorError(format!("found '{literal}' expected: '('")));
        }
        match self.peek() {
            (Token::Identifier | Token::Comma, literal) => {
                let values = self.identifiers()?;
                if self.next().0 != Token::ClosedParenthesis {
                    return Err(SelectorError(format!("found '{literal}', expected: ')'")));
                }
                Ok(values)
            }
            (Token::ClosedParenthesis, _) => {
                self.next();
                Ok(vec![String::new()])
            }
            (_, literal) => Err(SelectorError(format!("found '{literal}', expected: ',', ')' or identifier"))),
        }
    }

    fn identifiers(&mut self) -> Result<Vec<String>, SelectorError> {
        let mut values = Vec::new();
        loop {
            match self.next() {
                (Token::Identifier, literal) => {
                    values.push(literal.to_owned());
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::ClosedParenthesis, _) => return Ok(values),
                        (_, literal) => return Err(SelectorError(format!("found '{literal}', expected: ',' or ')'"))),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek().0 {
                        Token::ClosedParenthesis => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.next();
                            values.push(String::new());
                        }
                        _ => {}
                    }
                }
                (_, literal) => return Err(SelectorError(format!("found '{literal}', expected: ',', or identifier"))),
            }
        }
    }

    fn exact_value(&mut self) -> Result<String, SelectorError> {
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.next() {
            (Token::Identifier, literal) => Ok(literal.to_owned()),
            (_, literal) => Err(SelectorError(format!("found '{literal}', expected: identifier"))),
        }
    }
}
