//! From the parameters of a C function to the arguments of its chapter function: which checks, which
//! conversions. `src/chapters/mod.rs` has the table that this file carries out.

use crate::ctypes::object_of;
use crate::standard::{Direction, Function, Parameter};
use crate::tables::{leader_side, may_be_null, receives, rust_name};

/// When a statement is to be executed: later ones rely on what earlier ones have made.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    Communicators,
    Scalars,
    Objects,
    Memory,
}

/// The statements before the call of the chapter function, and its arguments.
#[derive(Default)]
pub struct Plan {
    pub statements: Vec<(Stage, String)>,
    pub arguments: Vec<String>,
}

pub fn plan(function: &Function) -> Plan {
    let mut plan = Plan::default();
    if function.parameters.iter().any(|parameter| parameter.root_only) {
        plan.at(Stage::Scalars, "let at_root = check::is_root(root, &comm);");
    }
    let fixed = function.parameters.iter().enumerate().filter(|(_, parameter)| parameter.name != "...");
    for (index, parameter) in fixed {
        let one = One { function, parameter, n: index + 1, name: rust_name(&parameter.name) };
        let argument = one.plan(&mut plan);
        let argument = if parameter.large_only { format!("Some({argument})") } else { argument };
        plan.arguments.push(argument);
    }
    plan
}

impl Plan {
    pub fn at(&mut self, stage: Stage, statement: impl Into<String>) {
        self.statements.push((stage, statement.into()));
    }
}

/// One parameter in its function.
struct One<'a> {
    function: &'a Function,
    parameter: &'a Parameter,
    n: usize,
    name: String,
}

/// Kinds of numbers that may not be negative.
const NOT_NEGATIVE: &[&str] = &[
    "ALLOC_MEM_NUM_BYTES",
    "ARRAY_LENGTH",
    "ARRAY_LENGTH_NNI",
    "ARRAY_LENGTH_PI",
    "INFO_VALUE_LENGTH",
    "POLYDTYPE_NUM_ELEM_NNI",
    "POLYDTYPE_NUM_ELEM_PI",
    "POLYDTYPE_PACK_SIZE",
    "POLYNUM_BYTES_NNI",
    "POLYNUM_PARAM_VALUES",
    "POLYXFER_NUM_ELEM",
    "POLYXFER_NUM_ELEM_NNI",
    "XFER_NUM_ELEM",
    "XFER_NUM_ELEM_NNI",
];

/// Kinds of `void *` through which an address is returned.
const ADDRESS_OUT: &[&str] = &["ATTRIBUTE_VAL", "ATTRIBUTE_VAL_10", "C_BUFFER", "C_BUFFER2"];

impl One<'_> {
    /// Adds the statements the parameter needs and gives the argument it becomes.
    fn plan(&self, plan: &mut Plan) -> String {
        let parameter = self.parameter;
        if parameter.base.contains("_function") {
            return self.callback(plan);
        }
        let is_named = matches!(parameter.base.as_str(), "char" | "void");
        if self.function.is_tool_call() && parameter.direction != Direction::In && !is_named {
            return format!("OptionalOut::new({})", self.name);
        }
        match parameter.base.as_str() {
            "MPI_Win" | "MPI_File" => self.undecoded(plan),
            "MPI_Request" => self.request(plan),
            "MPI_Message" => self.message(plan),
            base if object_of(base).is_some() => self.object(plan),
            "MPI_Status" => self.status(plan),
            "char" => self.string(plan),
            "void" => self.memory(plan),
            _ if parameter.pointers == 0 => self.scalar(plan),
            _ => self.numbers(plan),
        }
    }

    fn n_name(&self) -> (usize, &str) {
        (self.n, &self.name)
    }

    /// An expression that is true if the argument is significant; `None` if it always is.
    fn significance(&self) -> Option<String> {
        let mut terms = Vec::new();
        if self.parameter.root_only {
            terms.push("at_root");
        } else if let Some(term) = self.significance_between_groups() {
            terms.push(term);
        }
        let collective = self.function.find("sendbuf").is_some() && self.function.find("dest").is_none();
        let scatters = self.function.name.to_lowercase().contains("scatter") && self.function.find("op").is_none();
        let belongs_to_send = self.name.starts_with("send") && self.name != "sendbuf"
            || self.name == "sdispls"
            || self.name == "displs" && scatters;
        if collective && belongs_to_send {
            terms.push("!is_in_place(sendbuf.cast())");
        }
        if collective && scatters && matches!(self.name.as_str(), "recvcount" | "recvtype") {
            terms.push("!is_in_place(recvbuf.cast())");
        }
        if self.over_neighbours() && self.name == "sendbuf" {
            terms.push("check::destination_count(&comm)? > 0");
        }
        if self.over_neighbours() && self.name == "recvbuf" {
            terms.push("check::source_count(&comm)? > 0");
        }
        (!terms.is_empty()).then(|| terms.join(" && "))
    }

    /// On intercommunicators data matters in one group and, of the other, at the root.
    fn significance_between_groups(&self) -> Option<&'static str> {
        let is_rooted = self.function.find("root").is_some() && self.function.find("comm").is_some();
        let is_data = ["buf", "count", "type", "op"].iter().any(|part| self.name.contains(part));
        if !is_rooted || !is_data {
            return None;
        }
        let has_root_only = self.function.parameters.iter().any(|parameter| parameter.root_only);
        let is_shared = matches!(self.name.as_str(), "buffer" | "count" | "datatype" | "op");
        Some(if is_shared || !has_root_only {
            "check::takes_part(root, &comm)"
        } else {
            "check::is_member(root, &comm)"
        })
    }

    /// The statement, executed only if the argument is significant.
    fn if_significant(&self, statement: &str) -> String {
        match self.significance() {
            Some(condition) => format!("if {condition} {{ {statement} }}"),
            None => statement.to_owned(),
        }
    }

    /// The number of elements of an array parameter, as an expression; `None` if only the chapter knows.
    fn length(&self) -> Option<String> {
        let length = self.parameter.length.as_deref()?;
        let named = match length {
            "*" => {
                ["incount", "count"].into_iter().find(|_| matches!(self.parameter.kind.as_str(), "STATUS" | "INDEX"))
            }
            name => Some(name),
        };
        let of_parameter = |name: &str| {
            let (n, _) = self.function.find(name)?;
            Some(format!("check::length(&face, {n}, i64::from({}))?", rust_name(name)))
        };
        if let Some(name) = named {
            return of_parameter(name).or_else(|| of_parameter("count"));
        }
        let per_process = self.function.find("comm").is_some()
            && matches!(
                self.parameter.kind.as_str(),
                "POLYXFER_NUM_ELEM_NNI" | "POLYDISPLACEMENT" | "DATATYPE" | "DISPLACEMENT"
            );
        if per_process && self.function.name.contains("educe_scatter") {
            // Of two groups, the own one is who gets a part each.
            return Some("comm.size() as usize".to_owned());
        }
        per_process.then(|| match (self.over_neighbours(), self.name.starts_with('s')) {
            (false, _) => "check::peer_count(&comm) as usize".to_owned(),
            (true, true) => "check::destination_count(&comm)?".to_owned(),
            (true, false) => "check::source_count(&comm)?".to_owned(),
        })
    }

    /// True for the neighbourhood collectives.
    fn over_neighbours(&self) -> bool {
        self.function.name.contains("eighbor_")
    }

    /// The same for arrays that may be insignificant.
    fn significant_length(&self) -> Option<String> {
        let length = self.length()?;
        Some(match self.significance() {
            Some(condition) => format!("if {condition} {{ {length} }} else {{ 0 }}"),
            None => length,
        })
    }

    fn not_null(&self, plan: &mut Plan) {
        if !may_be_null(&self.function.name, &self.parameter.name) {
            let (n, name) = self.n_name();
            plan.at(Stage::Memory, format!("check::pointer(&face, {n}, {name})?;"));
        }
    }

    fn scalar(&self, plan: &mut Plan) -> String {
        let (n, name) = self.n_name();
        let kind = self.parameter.kind.as_str();
        if self.parameter.is_poly || kind.starts_with("POLY") {
            plan.at(Stage::Scalars, format!("let {name} = i64::from({name});"));
        }
        if NOT_NEGATIVE.contains(&kind) || kind == "POLYDTYPE_NUM_ELEM" && name != "stride" {
            let check = format!("check::not_negative(&face, {n}, i64::from({name}))?;");
            plan.at(Stage::Scalars, self.if_significant(&check));
        }
        let in_comm = self.function.find("comm").is_some();
        let check = match (kind, name) {
            ("RANK", "dest") if self.function.name.contains("recv_init") => Some("source"),
            ("RANK", "dest") => Some("destination"),
            ("RANK", "source") => Some("source"),
            ("RANK", "root") => Some("root"),
            _ => None,
        };
        if let Some(check) = check.filter(|_| in_comm) {
            plan.at(Stage::Scalars, format!("check::{check}(&face, {n}, {name}, &comm)?;"));
        }
        if kind == "TAG" && in_comm {
            let wildcard = receives(&self.function.name) || name == "recvtag";
            let check = if wildcard { "tag_or_any" } else { "tag" };
            plan.at(Stage::Scalars, format!("check::{check}(&face, {n}, {name})?;"));
        }
        if kind == "LOGICAL" { format!("{name} != 0") } else { name.to_owned() }
    }

    fn numbers(&self, plan: &mut Plan) -> String {
        let (n, name) = self.n_name();
        let parameter = self.parameter;
        let wide = parameter.base != "int";
        let size = if wide { "Large" } else { "Small" };
        let poly = parameter.is_poly || parameter.kind.starts_with("POLY");
        if parameter.is_triples {
            let length = self.length().expect("triples are counted");
            plan.at(Stage::Memory, format!("let {name} = check::array(&face, {n}, {name}, {length})?;"));
            return name.to_owned();
        }
        match (parameter.direction, parameter.length.is_some(), self.significant_length()) {
            (Direction::In, true, Some(length)) => {
                plan.at(Stage::Objects, format!("let {name} = check::array(&face, {n}, {name}, {length})?;"));
                if poly {
                    plan.at(Stage::Objects, format!("let {name} = Counts::{size}({name});"));
                }
                if poly && NOT_NEGATIVE.contains(&parameter.kind.as_str()) {
                    plan.at(Stage::Objects, format!("check::none_negative(&face, {n}, {name})?;"));
                }
                name.to_owned()
            }
            (Direction::Out, true, Some(length)) => {
                plan.at(Stage::Memory, format!("let {name}_len = {length};"));
                plan.at(Stage::Memory, format!("if {name}_len > 0 {{ check::pointer(&face, {n}, {name})?; }}"));
                let out = format!("OutArray::new({name}, {name}_len)");
                if poly { format!("CountsOut::{size}({out})") } else { out }
            }
            (Direction::Out, false, _) => {
                self.not_null(plan);
                if poly { format!("CountOut::{size}(Out::new({name}))") } else { format!("Out::new({name})") }
            }
            (Direction::InOut, false, _) if !parameter.kind.starts_with("ARGUMENT") => {
                self.not_null(plan);
                format!("CountInOut::{}({name})", size.to_lowercase())
            }
            _ => name.to_owned(),
        }
    }

    fn callback(&self, plan: &mut Plan) -> String {
        let (n, name) = self.n_name();
        if self.parameter.base.starts_with("MPI_User_function") {
            let size = if self.parameter.base.ends_with("_c") { "Large" } else { "Small" };
            plan.at(Stage::Memory, format!("let {name} = check::function(&face, {n}, {name})?;"));
            return format!("UserFunctionPointer::{size}({name})");
        }
        name.to_owned()
    }

    fn undecoded(&self, plan: &mut Plan) -> String {
        if self.parameter.pointers > 0 && self.parameter.direction == Direction::Out {
            self.not_null(plan);
            return format!("Out::new({})", self.name);
        }
        self.name.clone()
    }

    fn request(&self, plan: &mut Plan) -> String {
        let (n, name) = self.n_name();
        match (self.parameter.direction, self.parameter.pointers, self.length()) {
            (Direction::Out, ..) => {
                self.not_null(plan);
                format!("OutHandle::new({name})")
            }
            (_, 0, _) => {
                plan.at(Stage::Memory, format!("let mut {name} = {name};"));
                plan.at(Stage::Memory, format!("check::requests(&face, {n}, &[{name}])?;"));
                format!("Requests::new(&face, &raw mut {name}, 1)")
            }
            (_, _, length) => {
                let length = length.unwrap_or_else(|| "1".to_owned());
                plan.at(Stage::Memory, format!("let {name}_len = {length};"));
                let array = format!("check::array(&face, {n}, {name}, {name}_len)?");
                plan.at(Stage::Memory, format!("check::requests(&face, {n}, {array})?;"));
                format!("Requests::new(&face, {name} as *mut _, {name}_len)")
            }
        }
    }

    fn message(&self, plan: &mut Plan) -> String {
        self.not_null(plan);
        match self.parameter.direction {
            Direction::Out => format!("OutHandle::new({})", self.name),
            _ => format!("MessageInOut::new({})", self.name),
        }
    }

    fn object(&self, plan: &mut Plan) -> String {
        let (n, name) = self.n_name();
        let object = object_of(&self.parameter.base).expect("asked for objects only");
        let has_buffer = self.function.parameters.iter().any(|parameter| parameter.kind == "BUFFER");
        match (self.parameter.direction, self.parameter.pointers) {
            (Direction::In, 0) => {
                let stage = if object == "Comm" { Stage::Communicators } else { Stage::Objects };
                let null_has_a_name = matches!(self.function.name.as_str(), "MPI_Comm_get_name" | "MPI_Type_get_name");
                if null_has_a_name || object == "Info" && !self.function.name.starts_with("MPI_Info_") {
                    plan.at(stage, format!("let {name} = check::object_or_null::<{object}>(&face, {n}, {name})?;"));
                    return format!("{name}.as_deref()");
                }
                if let Some(leader_side) = leader_side(&self.function.name, name) {
                    let rank = format!("{leader_side}.rank()");
                    let find = format!("check::at_leader(&face, {n}, {name}, local_leader, {rank})?");
                    plan.at(Stage::Memory, format!("let {name} = {find};"));
                    return format!("{name}.as_deref()");
                }
                let find = match self.count_of_type().filter(|_| has_buffer) {
                    Some(count) => format!("check::datatype(&face, {n}, {name}, {count})?"),
                    None => format!("check::object::<{object}>(&face, {n}, {name})?"),
                };
                let lenient = match object {
                    "Datatype" => Some("check::insignificant_datatype"),
                    "Op" => Some("check::insignificant_op"),
                    _ => None,
                };
                let find = match self.significance().zip(lenient) {
                    Some((condition, lenient)) => {
                        format!("if {condition} {{ {find} }} else {{ {lenient}(&face, {name}) }}")
                    }
                    None => find,
                };
                plan.at(stage, format!("let {name} = {find};"));
                if object == "Datatype" && has_buffer {
                    let check = format!("check::committed(&face, {n}, &{name})?;");
                    plan.at(stage, self.if_significant(&check));
                }
                format!("&{name}")
            }
            (Direction::In, _) if object == "Datatype" => self.datatypes(plan, has_buffer),
            (Direction::Out, _) if self.parameter.length.is_some() => {
                let length = self.length().expect("handle arrays are counted");
                plan.at(Stage::Memory, format!("let {name}_len = {length};"));
                plan.at(Stage::Memory, format!("if {name}_len > 0 {{ check::pointer(&face, {n}, {name})?; }}"));
                format!("OutArray::new({name}, {name}_len)")
            }
            (Direction::Out, _) => {
                self.not_null(plan);
                format!("OutHandle::new({name})")
            }
            (Direction::InOut, _) => {
                self.not_null(plan);
                plan.at(Stage::Memory, format!("let {name}_held = check::object::<{object}>(&face, {n}, *{name})?;"));
                format!("InOutHandle::new({name}, {name}_held)")
            }
            (Direction::In, _) => name.to_owned(),
        }
    }

    fn datatypes(&self, plan: &mut Plan, in_communication: bool) -> String {
        let (n, name) = self.n_name();
        let Some(length) = self.significant_length() else { return name.to_owned() };
        let counts = name.replace("types", "counts");
        let matters = match self.function.find(&counts) {
            Some(_) => format!("|index| {counts}.at(index) > 0"),
            None => "|_| true".to_owned(),
        };
        plan.at(Stage::Memory, format!("let {name} = check::array(&face, {n}, {name}, {length})?;"));
        plan.at(
            Stage::Memory,
            format!("let {name} = check::datatypes(&face, {n}, {name}, {matters}, {in_communication})?;"),
        );
        format!("&{name}")
    }

    fn status(&self, plan: &mut Plan) -> String {
        let name = &self.name;
        match (self.parameter.direction, self.length()) {
            (Direction::Out, Some(length)) => {
                plan.at(Stage::Memory, format!("let {name}_len = {length};"));
                format!("StatusesOut::new({name}, {name}_len)")
            }
            (Direction::Out, None) => format!("StatusOut::new({name})"),
            (Direction::In, _) => {
                self.not_null(plan);
                format!("&*{name}")
            }
            (Direction::InOut, _) => {
                self.not_null(plan);
                format!("&mut *{name}")
            }
        }
    }

    fn string(&self, plan: &mut Plan) -> String {
        let (n, name) = self.n_name();
        match (self.parameter.direction, self.parameter.pointers) {
            (Direction::In, 1) => {
                plan.at(Stage::Memory, format!("let {name} = check::string(&face, {n}, {name})?;"));
                name.to_owned()
            }
            (Direction::Out, 1) => {
                self.not_null(plan);
                let capacity = match self.parameter.length.as_deref() {
                    Some(constant) if constant.starts_with("MPI_") => format!("{constant} as usize"),
                    Some(length) => {
                        let (n, _) = self.function.find(length).expect("the length is a parameter");
                        format!("check::length(&face, {n}, i64::from({length}))? + 1")
                    }
                    None => "usize::MAX".to_owned(),
                };
                format!("StringOut::new({name}, {capacity})")
            }
            _ => name.to_owned(),
        }
    }

    fn memory(&self, plan: &mut Plan) -> String {
        let (n, name) = self.n_name();
        if self.function.is_tool_call() && self.parameter.kind == "C_BUFFER" {
            return format!("{name}.cast::<u8>()");
        }
        if self.parameter.direction == Direction::Out && ADDRESS_OUT.contains(&self.parameter.kind.as_str()) {
            self.not_null(plan);
            return format!("Out::new({name}.cast::<*mut c_void>())");
        }
        if self.parameter.kind != "BUFFER" {
            return if self.parameter.kind == "LOGICAL_VOID" {
                format!("{name}.cast::<u8>()")
            } else {
                name.to_owned()
            };
        }
        plan.at(Stage::Memory, format!("let {name} = {name}.cast::<u8>();"));
        let (count, datatype) = (self.sibling(&["count"]), self.sibling(&["type", "datatype"]));
        if datatype.is_some() && !self.in_place_is_legal() {
            plan.at(Stage::Memory, self.if_significant(&format!("check::not_in_place(&face, {n}, {name})?;")));
        }
        if let (Some(count), Some(datatype)) = (count, datatype) {
            let check = format!("check::buffer(&face, {n}, {name}, {count}, &{datatype})?;");
            plan.at(Stage::Memory, self.if_significant(&check));
        }
        name.to_owned()
    }

    /// The scalar parameter that describes this buffer, by the part of the name before `buf`.
    fn sibling(&self, words: &[&str]) -> Option<String> {
        let prefix = self.name.trim_end_matches("fer").trim_end_matches("buf");
        let prefix = if self.name == "inoutbuf" { "" } else { prefix };
        let candidates =
            words.iter().map(|word| format!("{prefix}{word}")).chain(words.iter().map(|word| (*word).to_owned()));
        let mut found = candidates.filter_map(|name| self.function.find(&name));
        found.find(|(_, parameter)| parameter.pointers == 0).map(|(_, parameter)| rust_name(&parameter.name))
    }

    /// The scalar parameter that says how many elements of this datatype there are.
    fn count_of_type(&self) -> Option<String> {
        let prefix = self.name.strip_suffix("datatype").or_else(|| self.name.strip_suffix("type"))?;
        let (_, count) = self.function.find(&format!("{prefix}count"))?;
        (count.pointers == 0).then(|| rust_name(&count.name))
    }

    /// True if `MPI_IN_PLACE` can stand for this buffer.
    fn in_place_is_legal(&self) -> bool {
        let point_to_point = self.over_neighbours()
            || self.function.find("dest").is_some()
            || self.function.find("root").is_none() && self.function.find("comm").is_none();
        let scatters = self.function.name.to_lowercase().contains("scatter") && self.function.find("op").is_none();
        !point_to_point && (self.name == "sendbuf" || self.name == "recvbuf" && scatters)
    }
}
