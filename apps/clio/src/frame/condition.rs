//! [`Condition`]: what a row must be to count, as people type it: `fare >= 12.5`.

use std::fmt;
use std::str::FromStr;

use crate::AppError;
use yonder_offload::Comparison;
use yonder_offload::frame::{ColumnKind, Condition as Operand, Test};

/// The comparisons as people type them; those that others begin with come later.
const COMPARISONS: [(&str, Comparison); 6] = [
    ("!=", Comparison::NotEqual),
    ("<=", Comparison::LessOrEqual),
    (">=", Comparison::GreaterOrEqual),
    ("=", Comparison::Equal),
    ("<", Comparison::Less),
    (">", Comparison::Greater),
];

/// A condition on the values of one column.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    /// Name of the column.
    pub column: String,
    /// How its values must compare with the operand.
    pub comparison: Comparison,
    /// A number for columns of numbers, or a text.
    pub operand: String,
}

impl FromStr for Condition {
    type Err = AppError;

    fn from_str(text: &str) -> Result<Self, AppError> {
        let found = COMPARISONS.iter().filter_map(|(sign, comparison)| {
            let (column, operand) = text.split_once(sign)?;
            Some((column.trim(), *comparison, operand.trim()))
        });
        // The first sign in the text counts: the others may be part of the operand.
        match found.min_by_key(|(column, ..)| column.len()) {
            Some((column, comparison, operand)) if !column.is_empty() => {
                Ok(Self { column: column.to_owned(), comparison, operand: operand.to_owned() })
            }
            _ => Err(AppError::Settings(format!(
                "'{text}' is not a condition: type a column, one of = != < <= > >=, and a value, such as 'fare >= 12.5'"
            ))),
        }
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signs = COMPARISONS.iter().filter(|(_, comparison)| *comparison == self.comparison);
        let sign = signs.map(|(sign, _)| *sign).next().unwrap_or_default();
        write!(formatter, "{} {sign} {}", self.column, self.operand)
    }
}

impl Condition {
    /// The test on a column of this kind, whose texts are `names`.
    pub(crate) fn test(&self, kind: ColumnKind, names: &[String]) -> Result<Test, AppError> {
        let wrong = |what: &str| AppError::Settings(format!("'{self}': {what}"));
        match kind {
            ColumnKind::I64 => {
                let operand = self.operand.parse();
                let operand = operand.map_err(|_| wrong("the column has whole numbers: compare it with one"))?;
                Ok(Test::I64(Operand::Is(self.comparison, operand)))
            }
            ColumnKind::F64 => {
                let operand = self.operand.parse();
                let operand = operand.map_err(|_| wrong("the column has numbers: compare it with one"))?;
                Ok(Test::F64(Operand::Is(self.comparison, operand)))
            }
            ColumnKind::U32 => {
                if !matches!(self.comparison, Comparison::Equal | Comparison::NotEqual) {
                    return Err(wrong("the column has texts: compare it with = or !="));
                }
                // No text has the last position, so a text that the column does not have is equal to none.
                let code = names.iter().position(|name| *name == self.operand).map_or(u32::MAX, |code| code as u32);
                Ok(Test::U32(Operand::Is(self.comparison, code)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_text() {
        for (text, column, comparison, operand) in [
            ("fare>=12.5", "fare", Comparison::GreaterOrEqual, "12.5"),
            (" fare > -1", "fare", Comparison::Greater, "-1"),
            ("zone != south<=", "zone", Comparison::NotEqual, "south<="),
            ("zone = a b", "zone", Comparison::Equal, "a b"),
            ("zone=", "zone", Comparison::Equal, ""),
        ] {
            let condition: Condition = text.parse().unwrap();
            assert_eq!(
                (condition.column.as_str(), condition.comparison, condition.operand.as_str()),
                (column, comparison, operand)
            );
            assert_eq!(condition.to_string().parse::<Condition>().unwrap(), condition);
        }
        for bad in ["", "fare", "= 5", "fare 5"] {
            let refused = bad.parse::<Condition>().unwrap_err().to_string();
            assert!(refused.starts_with(&format!("'{bad}' is not a condition: type")), "{refused}");
        }
    }

    #[test]
    fn operands_fit_their_columns() {
        let test = |text: &str, kind| text.parse::<Condition>().unwrap().test(kind, &["a".to_owned(), "b".to_owned()]);
        assert_eq!(test("x<5", ColumnKind::I64).unwrap(), Test::I64(Operand::Is(Comparison::Less, 5)));
        assert_eq!(test("x<5", ColumnKind::F64).unwrap(), Test::F64(Operand::Is(Comparison::Less, 5.0)));
        assert_eq!(test("x=b", ColumnKind::U32).unwrap(), Test::U32(Operand::Is(Comparison::Equal, 1)));
        assert_eq!(test("x=c", ColumnKind::U32).unwrap(), Test::U32(Operand::Is(Comparison::Equal, u32::MAX)));
        for (text, kind, hint) in [
            ("x<5.5", ColumnKind::I64, "'x < 5.5': the column has whole numbers: compare it with one"),
            ("x<y", ColumnKind::F64, "'x < y': the column has numbers: compare it with one"),
            ("x<b", ColumnKind::U32, "'x < b': the column has texts: compare it with = or !="),
        ] {
            assert_eq!(test(text, kind).unwrap_err().to_string(), hint);
        }
    }
}
