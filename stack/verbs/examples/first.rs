//! A first program: two stacks in one process, joined by memory ports; one writes into the other's
//! registered memory.
#![forbid(unsafe_code)]

use ironwarp::memory::{MemoryConfig, pair};
use ironwarp::{Access, Config, Event, PrivateData, QpAttr, RemoteMemory, STag, SendWr, Stack};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (near_port, far_port) = pair(&MemoryConfig::default(), &MemoryConfig::default());
    let (near, mut near_core) =
        Stack::builder(Config::in_memory("10.0.0.1/24")?).memory_port(near_port).build_one()?;
    let (far, mut far_core) =
        Stack::builder(Config::in_memory("10.0.0.2/24")?).memory_port(far_port).build_one()?;

    // The server listens, and sends each client the address of its memory.
    let mut server = far.context()?;
    let pd = server.alloc_pd();
    let target = server.register(pd, vec![0u8; 4096], Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
    let cq = server.create_cq(64)?;
    let accepted = server.create_qp(pd, &QpAttr::new(cq))?;
    server.listen("10.0.0.2:4791".parse()?)?;

    // The client connects.
    let mut client = near.context()?;
    let (pd, cq) = (client.alloc_pd(), client.create_cq(64)?);
    let qp = client.create_qp(pd, &QpAttr::new(cq))?;
    client.connect(qp, "10.0.0.2:4791".parse()?, b"hello")?;

    let text = b"placed by RDMA";
    while target.load_u8_acquire(text.len() - 1)? == 0 {
        near_core.poll(1);
        far_core.poll(1);
        if let Some(Event::ConnectRequest { request, .. }) = server.poll_event() {
            let place = [&target.stag().0.to_be_bytes()[..], &target.base_to().to_be_bytes()].concat();
            server.accept(request, accepted, &place)?;
        }
        if let Some(Event::Established { private_data, .. }) = client.poll_event() {
            client.post_send(qp, &SendWr::write_inline(1, text, advertised(&private_data)))?;
        }
    }
    let mut placed = [0; 14];
    target.read_at(0, &mut placed)?;
    println!("{}", String::from_utf8_lossy(&placed));
    Ok(())
}

fn advertised(data: &PrivateData) -> RemoteMemory {
    let stag = data[..4].try_into().map(u32::from_be_bytes).unwrap_or_default();
    let tagged_offset = data[4..12].try_into().map(u64::from_be_bytes).unwrap_or_default();
    RemoteMemory { stag: STag(stag), tagged_offset }
}
