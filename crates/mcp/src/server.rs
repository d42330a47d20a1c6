//! Answers the client's requests.

use crate::command::{Answer, Program, failure};
use crate::parameters::Given;
use crate::read;
use crate::tools::{Call, Definition, TOOLS};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::Value;
use std::ffi::OsString;

const INSTRUCTIONS: &str = "\
Atomdir gives this directory transactions: a set of changes takes effect as a whole or not at all, \
and can be undone. For one command, call run without a transaction. For several steps: begin, then \
run (or change files in the view), diff, and commit or abort. savepoint and rollback, or fork, let \
you try something and drop it. If a commit is refused because others changed the same things, \
nothing is lost: call conflicts, then commit with take_mine, take_theirs or merge. log and undo take \
back what was committed. A hint such as `atomdir commit 12 --merge` means the tool of that name: \
commit with merge='all'. A transaction stays open until commit or abort, also after you end.";

pub struct Server {
    program: Program,
}

impl Server {
    pub fn new(program: Program) -> Server {
        Server { program }
    }

    async fn answer(&self, call: Call, cancelled: impl Future<Output = ()>) -> Answer {
        match call {
            Call::Verb(words) => self.program.verb(&words, cancelled).await,
            Call::Command(command) => self.program.run(&command, cancelled).await,
            Call::Read {
                transaction,
                path,
                offset,
            } => {
                let words = ["status".to_owned(), transaction.to_string()].map(OsString::from);
                let status = self.program.verb(&words, cancelled).await?;
                let Some(view) = status["view"].as_str().map(str::to_owned) else {
                    return Err(failure(
                        "the transaction has a native view, which only commands can enter",
                        Some("read it with run, for example `cat`"),
                    ));
                };
                // The service answers the reads, and it may take its time.
                let reading = tokio::task::spawn_blocking(move || read::read(&view, &path, offset));
                let read = reading
                    .await
                    .map_err(|error| failure(&error.to_string(), None))?;
                read.map_err(|message| failure(&message, None))
            }
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("atomdir", env!("CARGO_PKG_VERSION")))
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _page: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = TOOLS.iter().map(Definition::tool).collect();
        Ok(ListToolsResult::with_all_items(tools))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = Definition::find(&request.name) else {
            let message = format!("there is no tool '{}'", request.name);
            return Err(ErrorData::invalid_params(message, None));
        };
        let answer = match Given::check(tool.parameters, request.arguments) {
            Ok(given) => {
                self.answer((tool.call)(&given), context.ct.cancelled())
                    .await
            }
            Err(message) => Err(failure(&message, None)),
        };
        Ok(result(answer).into())
    }
}

fn result(answer: Answer) -> CallToolResult {
    let is_error = answer.is_err();
    let value: Value = answer.unwrap_or_else(|failed| failed);
    match is_error {
        false => CallToolResult::structured(value),
        true => CallToolResult::structured_error(value),
    }
}
