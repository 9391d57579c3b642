//! The standard as data: `abi.json` for C types and values, `apis.json` for the meaning of parameters.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::tables::corrected;

/// What the generator needs to know of the standard.
pub struct Standard {
    /// `abi.json` itself, for the tables of constants.
    pub abi: Value,
    /// Every function of the C binding, in the order of the ABI's list.
    pub functions: Vec<Function>,
    /// Calls of the interface, by C name of the small form.
    apis: HashMap<String, Value>,
}

/// One C function, `MPI_Send_c` for instance.
pub struct Function {
    pub name: String,
    /// The whole prototype without a semicolon.
    pub prototype: String,
    pub returns: String,
    pub parameters: Vec<Parameter>,
    /// True for the large-count form of another function.
    pub is_large: bool,
    /// True if the function has both forms.
    pub has_twin: bool,
    pub returns_error_code: bool,
}

/// One parameter: its C declaration, and what it means.
#[derive(Clone)]
pub struct Parameter {
    pub name: String,
    /// As declared, without the name and array brackets: `const int`, `MPI_Comm`, `void`.
    pub base: String,
    /// Stars and brackets together.
    pub pointers: usize,
    pub is_const: bool,
    /// An outermost `[3]`, as in `int ranges[][3]`.
    pub is_triples: bool,
    pub kind: String,
    pub direction: Direction,
    pub length: Option<String>,
    pub root_only: bool,
    pub large_only: bool,
    /// True if the small and the large form declare it differently.
    pub is_poly: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    In,
    Out,
    InOut,
}

impl Standard {
    pub fn load(folder: &Path) -> Standard {
        let read = |name: &str| -> Value {
            let path = folder.join(name);
            let text = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            serde_json::from_str(&text).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
        };
        Standard::new(read("abi.json"), &read("apis.json"))
    }

    fn new(abi: Value, apis: &Value) -> Standard {
        let by_name = apis.as_object().expect("apis.json is an object").values();
        let apis = by_name.map(|api| (text(api, "name").to_owned(), api.clone())).collect();
        let mut standard = Standard { abi, functions: Vec::new(), apis };
        let prototypes: Vec<String> = standard.strings("prototypes").iter().map(|text| corrected(text)).collect();
        standard.functions = prototypes.iter().map(|prototype| standard.function(prototype)).collect();
        standard.mark_twins();
        standard
    }

    /// A list of strings of `abi.json`.
    pub fn strings(&self, key: &str) -> Vec<String> {
        self.rows(key).iter().map(|row| row.as_str().expect("a string").to_owned()).collect()
    }

    /// A list of `abi.json`.
    pub fn rows(&self, key: &str) -> &[Value] {
        self.abi[key].as_array().unwrap_or_else(|| panic!("abi.json: {key} is a list"))
    }

    fn function(&self, prototype: &str) -> Function {
        let (head, arguments) = prototype.split_once('(').expect("a prototype has parameters");
        let (returns, name) = head.rsplit_once(' ').expect("a prototype has a result");
        let arguments = arguments.trim_end_matches(')');
        let (api, is_large) = match self.apis.get(name) {
            Some(api) => (api, false),
            None => (&self.apis[name.strip_suffix("_c").expect("only large forms are derived")], true),
        };
        let meanings = api["parameters"].as_array().expect("parameters are a list").iter();
        let meanings: Vec<&Value> = meanings
            .filter(|meaning| !text(meaning, "suppress").contains("c_parameter"))
            .filter(|meaning| is_large || !meaning["large_only"].as_bool().unwrap_or(false))
            .collect();
        let declared: Vec<&str> = match arguments {
            "void" => Vec::new(),
            arguments => arguments.split(", ").collect(),
        };
        assert_eq!(meanings.len(), declared.len(), "{name}: as many parameters in both files");
        Function {
            name: name.to_owned(),
            prototype: prototype.to_owned(),
            returns: returns.to_owned(),
            parameters: declared.iter().zip(&meanings).map(|(text, meaning)| parameter(text, meaning)).collect(),
            is_large,
            has_twin: false,
            returns_error_code: text(api, "return_kind") == "ERROR_CODE",
        }
    }

    /// Finds out which functions have two forms, and which parameters differ between them.
    fn mark_twins(&mut self) {
        let forms: HashMap<String, Vec<Parameter>> =
            self.functions.iter().map(|function| (function.name.clone(), function.parameters.clone())).collect();
        for function in &mut self.functions {
            let twin = match function.is_large {
                true => function.name.trim_end_matches("_c").to_owned(),
                false => format!("{}_c", function.name),
            };
            let Some(twin) = forms.get(&twin) else { continue };
            function.has_twin = true;
            for parameter in &mut function.parameters {
                let other = twin.iter().find(|other| other.name == parameter.name);
                parameter.is_poly = other.is_some_and(|other| other.base != parameter.base);
            }
        }
    }
}

impl Function {
    /// The name of its chapter function.
    pub fn chapter_name(&self) -> String {
        let name = if self.is_large { self.name.trim_end_matches("_c") } else { &self.name };
        name.trim_start_matches("MPI_").to_lowercase()
    }

    /// True for the calls of the tool interface, which return numbers and ask no error handler.
    pub fn is_tool_call(&self) -> bool {
        self.name.starts_with("MPI_T_")
    }

    /// Number (counted from 1) and declaration of a parameter by name.
    pub fn find(&self, name: &str) -> Option<(usize, &Parameter)> {
        let at = self.parameters.iter().position(|parameter| parameter.name == name)?;
        Some((at + 1, &self.parameters[at]))
    }
}

fn parameter(declared: &str, meaning: &Value) -> Parameter {
    let declared = declared.trim();
    let length = match &meaning["length"] {
        Value::String(length) => Some(length.clone()),
        Value::Array(lengths) => lengths[0].as_str().map(str::to_owned),
        _ => None,
    };
    let direction = match text(meaning, "param_direction") {
        "in" => Direction::In,
        "out" => Direction::Out,
        "inout" => Direction::InOut,
        other => panic!("direction {other}"),
    };
    let is_triples = declared.ends_with("[][3]");
    let brackets = declared.matches("[]").count();
    let plain = declared.replace("[]", "").replace("[3]", "");
    let stars = plain.matches('*').count();
    let plain = plain.replace('*', " ");
    let mut words: Vec<&str> = plain.split_whitespace().collect();
    let name = words.pop().expect("a parameter has a name").to_owned();
    let is_const = words.first() == Some(&"const");
    words.retain(|word| *word != "const");
    let flag = |key: &str| meaning[key].as_bool().unwrap_or(false);
    Parameter {
        name,
        base: words.join(" "),
        pointers: stars + brackets,
        is_const,
        is_triples,
        kind: text(meaning, "kind").to_owned(),
        direction,
        length,
        root_only: flag("root_only"),
        large_only: flag("large_only"),
        is_poly: false,
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}
