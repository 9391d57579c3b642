//! C types in Rust: of entry point parameters, and of the callbacks.

use std::fmt::Write;

use crate::standard::{Parameter, Standard};

/// The object type that stands in the handle of a C handle type.
pub fn object_of(base: &str) -> Option<&'static str> {
    Some(match base {
        "MPI_Comm" => "Comm",
        "MPI_Group" => "Group",
        "MPI_Datatype" => "Datatype",
        "MPI_Op" => "Op",
        "MPI_Info" => "Info",
        "MPI_Errhandler" => "ErrorHandler",
        "MPI_Request" => "Request",
        "MPI_Message" => "Message",
        "MPI_Win" => "Win",
        "MPI_File" => "File",
        "MPI_Session" => "Session",
        _ => return None,
    })
}

/// The Rust type of a C type without pointers.
fn plain(base: &str) -> String {
    if let Some(object) = object_of(base) {
        return format!("Handle<{object}>");
    }
    match base {
        "int" | "MPI_T_cb_safety" | "MPI_T_source_order" => "c_int".to_owned(),
        "MPI_Aint" | "MPI_Offset" | "MPI_Count" => "i64".to_owned(),
        "char" => "c_char".to_owned(),
        "void" => "c_void".to_owned(),
        "double" => "f64".to_owned(),
        "MPI_Status" => "CStatus".to_owned(),
        tool if tool.starts_with("MPI_T_") && !tool.ends_with("_function") => "ToolHandle".to_owned(),
        other => panic!("no Rust type for {other}"),
    }
}

/// The Rust type of a parameter of an entry point.
pub fn raw(parameter: &Parameter) -> String {
    if parameter.base.contains("_function") {
        return format!("Option<{}>", parameter.base);
    }
    if parameter.is_triples {
        return "*const [c_int; 3]".to_owned();
    }
    wrap(&plain(&parameter.base), parameter.pointers, parameter.is_const)
}

/// The Rust type of what an entry point returns.
pub fn returned(base: &str) -> String {
    plain(base)
}

fn wrap(plain: &str, pointers: usize, is_const: bool) -> String {
    let mut text = plain.to_owned();
    for level in 0..pointers {
        let qualifier = if level == 0 && is_const { "*const " } else { "*mut " };
        text.insert_str(0, qualifier);
    }
    text
}

/// The callback types, and the handle types by their C names.
pub fn text(standard: &Standard) -> String {
    let mut text = String::new();
    for row in standard.rows("callback_typedefs") {
        let [name, returns, parameters] = [0, 1, 2].map(|at| row[at].as_str().expect("a string"));
        let parameters: Vec<String> = parameters.split(", ").map(callback_parameter).collect();
        let result = if returns == "void" { String::new() } else { format!(" -> {}", plain(returns)) };
        writeln!(text, "/// `{name}` of the standard.").expect("strings take everything");
        writeln!(text, "pub type {name} = unsafe extern \"C\" fn({}){result};", parameters.join(", "))
            .expect("strings take everything");
    }
    text
}

fn callback_parameter(declared: &str) -> String {
    if declared == "..." {
        return declared.to_owned();
    }
    let stars = declared.matches('*').count();
    let words = declared.replace('*', " ");
    let base = words.split_whitespace().next().expect("a type");
    wrap(&plain(base), stars, false)
}
