//! `--listen`: a web server with one page, the counters for Prometheus.
//!
//! One thread serves at most [`CONNECTIONS_MAX`] connections. A further one takes the place of one
//! that has sent no request yet: silent clients do not delay a scrape ([`Connections::make_room`]).
//! A connection carries one request, whose headers are bounded in number, size and time, and ends
//! after [`CONNECTION_TIMEOUT`] at the latest. Ctrl-C ends the server: open connections may finish
//! within [`DRAIN_TIMEOUT`]. Fails if the address cannot be bound.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use ironwarp_cli::print_stdout;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

use crate::metrics;

const CONNECTIONS_MAX: usize = 16;
/// From the connection to the end of the request's headers.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);
/// From the connection to the last byte of the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of a request's headers; the smallest number that hyper allows.
const HEADER_BYTES_MAX: usize = 8192;
const HEADERS_MAX: usize = 64;
/// The interval between two checks for Ctrl-C.
const STEP: Duration = Duration::from_millis(100);
/// The pause after an error of `accept`, for example when no descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves the page's counters until `stop` is set. Prints the address when connections are
/// possible.
pub(crate) fn serve(address: SocketAddr, page: &Path, stop: &AtomicBool) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        print_stdout(format_args!("listening at http://{}/metrics\n", listener.local_addr()?));
        accept_until_stopped(&listener, Arc::new(page.to_owned()), stop).await;
        Ok(())
    })
}

async fn accept_until_stopped(listener: &TcpListener, page: Arc<PathBuf>, stop: &AtomicBool) {
    let mut connections = Connections::default();
    while !stop.load(Ordering::Relaxed) {
        match timeout(STEP, listener.accept()).await {
            Ok(Ok((stream, from))) => connections.serve(stream, from.ip(), page.clone()),
            Ok(Err(error)) => {
                tracing::warn!("no connection accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            Err(_) => {}
        }
        connections.remove_ended();
    }
    // Connections that take longer end with the runtime.
    let _ = timeout(DRAIN_TIMEOUT, connections.finish()).await;
}

/// The open connections, in the order in which they came.
#[derive(Default)]
struct Connections {
    open: Vec<OpenConnection>,
    tasks: JoinSet<()>,
}

struct OpenConnection {
    from: IpAddr,
    /// Whether it has sent a request, to which the response is on its way.
    has_asked: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Connections {
    fn serve(&mut self, stream: TcpStream, from: IpAddr, page: Arc<PathBuf>) {
        self.remove_ended();
        self.make_room();
        let has_asked = Arc::new(AtomicBool::new(false));
        let task = self.tasks.spawn(serve_connection(stream, page, has_asked.clone()));
        self.open.push(OpenConnection { from, has_asked, task });
    }

    fn remove_ended(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|one| !one.task.is_finished());
    }

    /// Closes a connection if all slots are taken: one without a request before one with a request,
    /// then one of the address that has the most, then the oldest.
    fn make_room(&mut self) {
        if self.open.len() < CONNECTIONS_MAX {
            return;
        }
        let mut by_address: HashMap<IpAddr, usize> = HashMap::new();
        self.open.iter().for_each(|one| *by_address.entry(one.from).or_default() += 1);
        let rank = |one: &OpenConnection| {
            (!one.has_asked.load(Ordering::Relaxed), by_address.get(&one.from).copied().unwrap_or(0))
        };
        // The first of several is the oldest.
        let first = (0..self.open.len()).rev().max_by_key(|index| self.open.get(*index).map(rank));
        if let Some(index) = first {
            let closed = self.open.remove(index);
            closed.task.abort();
            tracing::info!("a connection of {} made room for another", closed.from);
        }
    }

    async fn finish(&mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

async fn serve_connection(stream: TcpStream, page: Arc<PathBuf>, has_asked: Arc<AtomicBool>) {
    let service = service_fn(move |request: Request<Incoming>| {
        has_asked.store(true, Ordering::Relaxed);
        let response = respond(request.method(), request.uri().path(), &page);
        async move { Ok::<_, Infallible>(response) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .keep_alive(false)
        .max_buf_size(HEADER_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .serve_connection(TokioIo::new(stream), service);
    match timeout(CONNECTION_TIMEOUT, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::info!("a connection ended: {error}"),
        Err(_) => tracing::info!("a connection took more than {} s", CONNECTION_TIMEOUT.as_secs()),
    }
}

fn respond(method: &Method, path: &str, page: &Path) -> Response<Full<Bytes>> {
    if method != Method::GET && method != Method::HEAD {
        let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        return response;
    }
    match path {
        "/metrics" => plain(StatusCode::OK, metrics::scrape(page)),
        "/" => plain(StatusCode::OK, "the counters are at /metrics\n".to_owned()),
        _ => plain(StatusCode::NOT_FOUND, "the counters are at /metrics\n".to_owned()),
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(metrics::CONTENT_TYPE));
    response
}
