//! The entry points: one `extern "C"` function for each function of the standard.

use std::collections::HashMap;
use std::fmt::Write;

use crate::arguments::{self, Stage};
use crate::ctypes::{object_of, raw, returned};
use crate::standard::{Direction, Function, Standard};
use crate::tables::{ANY_TIME, BRIEF, GATELESS, needs_no_others, rust_name};

pub fn text(standard: &Standard, chapters: &HashMap<String, String>) -> String {
    let mut text = String::new();
    for function in &standard.functions {
        text.push_str(&entry(function, chapters));
        text.push('\n');
    }
    coverage(&mut text, standard, chapters);
    text
}

/// One entry point; `chapters` tells where its chapter function stands, if it is written.
fn entry(function: &Function, chapters: &HashMap<String, String>) -> String {
    let chapter = chapters.get(&function.chapter_name()).map(String::as_str);
    if !function.returns_error_code {
        return direct(function, chapter);
    }
    let mut text = head(function);
    let parameters: Vec<String> =
        function.parameters.iter().map(|parameter| format!("\"{}\"", parameter.name)).collect();
    let any_time = is_legal_any_time(function);
    let call = format!(
        "static CALL: Call = Call {{ name: \"{}\", parameters: &[{}], any_time: {any_time} }};",
        function.name,
        parameters.join(", ")
    );
    line(&mut text, 1, &call);
    match chapter.zip(Attempt::of(function, chapters)) {
        Some((chapter, attempt)) => attempted(&mut text, function, chapter, attempt),
        None => whole(&mut text, 1, function, chapter),
    }
    text.push_str("}\n");
    text
}

fn is_legal_any_time(function: &Function) -> bool {
    function.is_tool_call() || ANY_TIME.contains(&function.name.trim_end_matches("_c"))
}

/// What is tried before the whole of a call, without preparing for what may go wrong. It frees nothing and leaves everything as
/// it was if it does not come to an end; and once code of the user may have run, it looks at no object any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    /// The call itself, which only looks.
    Brief,
    /// The chapter's function `x_at_once`: what the call `x` may come to without waiting for anything.
    AtOnce,
    /// The chapter's function `x_alone`: what the call `x` comes to on a communicator of this process alone.
    Alone,
}

impl Attempt {
    fn of(function: &Function, chapters: &HashMap<String, String>) -> Option<Attempt> {
        let is_written = |attempt: &Attempt| chapters.contains_key(&attempt.chapter_name(function));
        if BRIEF.contains(&function.name.as_str()) {
            return Some(Attempt::Brief);
        }
        [Attempt::AtOnce, Attempt::Alone].into_iter().find(is_written)
    }

    fn chapter_name(self, function: &Function) -> String {
        let suffix = match self {
            Attempt::Brief => "",
            Attempt::AtOnce => "_at_once",
            Attempt::Alone => "_alone",
        };
        format!("{}{suffix}", function.chapter_name())
    }
}

/// A call with a first attempt: without holding or gate if that is possible, or else as every other one.
fn attempted(text: &mut String, function: &Function, chapter: &str, attempt: Attempt) {
    line(text, 1, "#[cold]");
    line(text, 1, "#[inline(never)]");
    line(text, 1, &format!("unsafe extern \"C\" fn whole({}) -> c_int {{", declared(function)));
    whole(text, 2, function, Some(chapter));
    line(text, 1, "}");
    line(text, 1, "let attempt = || -> Option<()> {");
    line(text, 2, "use crate::face::brief as check;");
    line(text, 2, "let face = Face::for_attempt(&CALL)?;");
    line(text, 2, "// SAFETY: as in the whole call; besides, nothing is freed while objects are looked at.");
    line(text, 2, "unsafe {");
    body(text, 3, function, chapter, Some(attempt));
    line(text, 2, "}");
    line(text, 1, "};");
    let names: Vec<String> = function.parameters.iter().map(|parameter| rust_name(&parameter.name)).collect();
    let whole = format!("whole({})", names.join(", "));
    line(text, 1, "// SAFETY: passed on.");
    line(text, 1, &format!("if attempt().is_some() {{ 0 }} else {{ unsafe {{ {whole} }} }}"));
}

/// The whole of a call: entering, the checks, the chapter's function, and what happens when it fails.
fn whole(text: &mut String, depth: usize, function: &Function, chapter: Option<&str>) {
    let gateless = GATELESS.contains(&function.name.as_str());
    let enter = match (is_legal_any_time(function), needs_no_others(&function.name)) {
        _ if function.name == "MPI_Abort" => {
            "let face = match Face::enter_to_end(&CALL) { Ok(face) => face, Err(code) => return code };"
        }
        _ if gateless => "let face = Face::enter_gateless(&CALL);",
        (true, _) => "let face = Face::enter_any_time(&CALL);",
        (false, true) => "let face = match Face::enter_local(&CALL) { Ok(face) => face, Err(code) => return code };",
        (false, false) => "let face = match Face::enter(&CALL) { Ok(face) => face, Err(code) => return code };",
    };
    line(text, depth, enter);
    let given = given(function);
    let Some(chapter) = chapter else {
        let end = match function.is_tool_call() {
            true => "face.finish_tool(Err(face.unsupported()))".to_owned(),
            false => format!("face.fail(face.unsupported(), {given})"),
        };
        return line(text, depth, &end);
    };
    line(text, depth, "// SAFETY: the program has passed what the standard demands of each pointer.");
    line(text, depth, "let body = || -> Result<()> { unsafe {");
    if function.is_tool_call() && function.name != "MPI_T_init_thread" {
        line(text, depth + 1, "face.process().tool.check_initialized()?;");
    }
    body(text, depth + 1, function, chapter, None);
    line(text, depth, "} };");
    let end = match function.is_tool_call() {
        true => "face.finish_tool(body())".to_owned(),
        false if gateless => "face.finish_gateless(body())".to_owned(),
        false => format!("face.finish(body(), {given})"),
    };
    line(text, depth, &end);
}

/// The checks, and the call of the chapter's function, or of the one for a first attempt.
fn body(text: &mut String, depth: usize, function: &Function, chapter: &str, attempt: Option<Attempt>) {
    let mut plan = arguments::plan(function);
    if attempt == Some(Attempt::Alone) {
        plan.at(Stage::Communicators, "check::alone(&comm)?;");
    }
    plan.statements.sort_by_key(|(stage, _)| *stage);
    for (_, statement) in &plan.statements {
        line(text, depth, statement);
    }
    let name = attempt.map_or_else(|| function.chapter_name(), |attempt| attempt.chapter_name(function));
    let end = if attempt == Some(Attempt::Brief) { ".ok()" } else { "" };
    let arguments = [vec!["&face".to_owned()], missing_large_arguments(function, plan.arguments)].concat();
    line(text, depth, &format!("chapters::{chapter}::{name}({}){end}", arguments.join(", ")));
}

/// What exists only in the large form is `None` in the small one; it stands where the large form has it.
fn missing_large_arguments(function: &Function, mut arguments: Vec<String>) -> Vec<String> {
    let places: &[usize] = match function.name.as_str() {
        "MPI_Type_get_contents" => &[3, 7],
        "MPI_Type_get_envelope" => &[3],
        _ => &[],
    };
    for place in places {
        arguments.insert(*place, "None".to_owned());
    }
    arguments
}

/// The object whose error handler is asked.
fn given(function: &Function) -> String {
    let found = |base: &str| {
        let mut of_type = function.parameters.iter().filter(|parameter| parameter.base == base);
        of_type.find(|parameter| parameter.direction != Direction::Out)
    };
    let makes_what_fails = matches!(
        function.name.as_str(),
        "MPI_Session_init" | "MPI_Comm_create_from_group" | "MPI_Intercomm_create_from_groups"
    );
    if makes_what_fails {
        return "Given::Handler(errhandler.value)".to_owned();
    }
    // SAFETY of the generated calls with `unsafe`: the program has passed a handle to be changed.
    match (found("MPI_Comm"), found("MPI_Session")) {
        (Some(comm), _) if comm.pointers == 0 => format!("Given::Comm({}.value)", rust_name(&comm.name)),
        (Some(comm), _) => format!("unsafe {{ Given::at({}) }}", rust_name(&comm.name)),
        (None, Some(session)) if session.pointers == 0 => format!("Given::Session({}.value)", session.name),
        (None, Some(session)) => format!("unsafe {{ Given::session_at({}) }}", session.name),
        (None, None) => "Given::Nothing".to_owned(),
    }
}

/// Functions that return something else than an error code: no checks, no gate.
fn direct(function: &Function, chapter: Option<&str>) -> String {
    let mut text = head(function);
    let names: Vec<String> = function.parameters.iter().map(|parameter| rust_name(&parameter.name)).collect();
    let object = |base: &str| object_of(base).filter(|object| !matches!(*object, "Win" | "File"));
    let call = if function.name.ends_with("_toint") {
        format!("to_int({}.value)", names[0])
    } else if function.name.ends_with("_fromint") {
        match object(&function.returns) {
            Some(object) => format!("from_int::<{object}>({})", names[0]),
            None => format!("Handle::new({} as u32 as usize)", names[0]),
        }
    } else {
        let chapter = chapter.unwrap_or_else(|| panic!("{} has to be written", function.name));
        format!("chapters::{chapter}::{}({})", function.chapter_name(), names.join(", "))
    };
    line(&mut text, 1, &call);
    text.push_str("}\n");
    text
}

fn head(function: &Function) -> String {
    format!(
        "/// `{}`\n#[unsafe(no_mangle)]\npub unsafe extern \"C\" fn P{}({}) -> {} {{\n",
        function.prototype,
        function.name,
        declared(function),
        returned(&function.returns)
    )
}

/// The parameters of a function, as Rust declares them.
fn declared(function: &Function) -> String {
    let named = function.parameters.iter().filter(|parameter| parameter.name != "...");
    let declared: Vec<String> =
        named.map(|parameter| format!("{}: {}", rust_name(&parameter.name), raw(parameter))).collect();
    declared.join(", ")
}

/// Which functions are there, for `ferrovia info --coverage`.
fn coverage(text: &mut String, standard: &Standard, chapters: &HashMap<String, String>) {
    let is_written = |function: &&Function| {
        let converts = function.name.ends_with("_toint") || function.name.ends_with("_fromint");
        converts || chapters.contains_key(&function.chapter_name())
    };
    text.push_str("/// Every function of the standard's C binding, and whether it is implemented.\n");
    text.push_str("pub const COVERAGE: &[(&str, bool)] = &[\n");
    for function in &standard.functions {
        line(text, 1, &format!("(\"{}\", {}),", function.name, is_written(&function)));
    }
    text.push_str("];\n");
    let table: String = standard
        .functions
        .iter()
        .map(|function| {
            format!("{} {}\\n", function.name, if is_written(&function) { "implemented" } else { "missing" })
        })
        .collect();
    writeln!(text, "const COVERAGE_TEXT: &CStr = c\"{table}\";").expect("strings take everything");
}

fn line(text: &mut String, depth: usize, line: &str) {
    writeln!(text, "{}{line}", "    ".repeat(depth)).expect("strings take everything");
}
