//! Objects whose keys keep their order, as people read them in event logs.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;

use crate::base64;

/// Keys and values in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fields(pub Vec<(String, Value)>);

impl Fields {
    /// Reads an object.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// The value of a key; `Null` when there is none.
    pub fn get(&self, key: &str) -> &Value {
        self.0
            .iter()
            .find(|(k, _)| k == key)
            .map_or(&Value::Null, |(_, v)| v)
    }

    /// Adds a piece of a stream, or its end, as in RFC 24.
    pub fn push_data(&mut self, data: &[u8], eof: bool) {
        let mut push = |key: &str, value: Value| self.0.push((key.to_owned(), value));
        if eof {
            push("eof", true.into());
            return;
        }
        let (data, encoded) = base64::to_json(data);
        if encoded {
            push("encoding", "base64".into());
        }
        push("data", data);
    }
}

impl fmt::Display for Fields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (n, (key, value)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{}:{value}", Value::from(key.as_str()))?;
        }
        f.write_str("}")
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut out = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    out.push(entry);
                }
                Ok(Fields(out))
            }
        }
        d.deserialize_map(Object)
    }
}

/// Makes [`Fields`] from `key: value` pairs.
#[macro_export]
macro_rules! fields {
    ($($key:literal : $value:expr),* $(,)?) => {
        $crate::fields::Fields(vec![$(($key.to_owned(), ::serde_json::json!($value))),*])
    };
}

/// One entry of an event log.
#[derive(Clone, Debug)]
pub struct Event {
    /// Seconds since 1970.
    pub timestamp: f64,
    /// What happened.
    pub name: String,
    /// More about it.
    pub context: Option<Fields>,
}

impl Event {
    /// Reads a line of an event log.
    pub fn parse(line: &str) -> Option<Self> {
        let all = Fields::parse(line)?;
        // The context once more from the text: values do not keep key order.
        #[derive(serde::Deserialize)]
        struct Line {
            #[serde(default)]
            context: Option<Fields>,
        }
        let line: Line = serde_json::from_str(line).ok()?;
        Some(Self {
            timestamp: all.get("timestamp").as_f64()?,
            name: all.get("name").as_str()?.to_owned(),
            context: line.context,
        })
    }

    /// The line, with its newline. Time is kept to the microsecond.
    pub fn line(&self) -> String {
        let context = match &self.context {
            Some(c) => format!(",\"context\":{c}"),
            None => String::new(),
        };
        format!(
            "{{\"timestamp\":{:.6},\"name\":{}{context}}}\n",
            self.timestamp,
            Value::from(self.name.as_str())
        )
    }

    /// A value of the context; `Null` when there is none.
    pub fn get(&self, key: &str) -> &Value {
        self.context.as_ref().map_or(&Value::Null, |c| c.get(key))
    }
}

impl fmt::Display for Event {
    /// As `flux job eventlog` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6} {}", self.timestamp, self.name)?;
        for (key, value) in self.context.iter().flat_map(|c| &c.0) {
            write!(f, " {key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept() {
        let event = Event {
            timestamp: 12.5,
            name: "x".to_owned(),
            context: Some(fields! {"z": 1, "a": "t"}),
        };
        let line = event.line();
        assert_eq!(
            line,
            "{\"timestamp\":12.500000,\"name\":\"x\",\"context\":{\"z\":1,\"a\":\"t\"}}\n"
        );
        let back = Event::parse(&line).unwrap();
        assert_eq!(back.to_string(), "12.500000 x z=1 a=\"t\"");
        assert_eq!(back.get("a"), "t");
    }
}
