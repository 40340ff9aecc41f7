//! Builds hosts and cables from a plan.

use ironwarp::Stack;
use ironwarp_port::memory::{MemoryConfig, MemoryControl, MemoryPort};
use ironwarp_sim::SimNet;
use ironwarp_types::MacAddr;

use super::host_clock::HostClock;
use super::{Host, Switch, World};
use crate::app::{App, Oracle};
use crate::hostile::Hostile;
use crate::plan::{Fault, Plan};
use crate::tcp::SharedNode;
use crate::text;
use crate::wire::FrameChecker;

impl World {
    pub(super) fn build(plan: &Plan) -> Result<Self, String> {
        let mut net = SimNet::new(plan.seed);
        net.set_loop_time(plan.loop_time);
        let oracle = Oracle::new(plan);
        let (mut ports, mut devices, mut host_queues) = (Vec::new(), Vec::new(), Vec::new());
        for host in &plan.hosts {
            let (id, queues) = net.add_port_of_queues(&host.device, host.cores());
            ports.push(id);
            devices.push(queues.iter().map(MemoryPort::control).collect::<Vec<_>>());
            host_queues.push(queues);
        }
        let mut hostile_port = None;
        if let Some(hostile) = &plan.hostile {
            let (id, port) = net.add_port(&hostile.device);
            ports.push(id);
            hostile_port = Some(port);
        }
        let levels = |queues: &Vec<MemoryControl>| queues.iter().map(MemoryControl::free_frames).collect();
        let pools = devices.iter().map(levels).collect();
        let mut world = World {
            net,
            oracle,
            hosts: Vec::new(),
            ports,
            devices,
            pools,
            cables: Vec::new(),
            plan: plan.clone(),
        };
        world.connect_links();
        world.watch();
        for (number, queues) in host_queues.into_iter().enumerate() {
            world.add_host(number, queues).map_err(|error| format!("host {number}: {error}"))?;
        }
        if let (Some(hostile), Some(port)) = (&plan.hostile, hostile_port) {
            let node = Hostile::new(plan, hostile, port, &world.oracle);
            world.net.add_node(Box::new(node), &[world.ports[plan.hosts.len()]]);
        }
        Ok(world)
    }

    /// Checks every frame that a host sends. A frame from a switch may have been damaged on its way
    /// there.
    fn watch(&mut self) {
        let hosts = self.ports[..self.plan.hosts.len()].to_vec();
        let mut frame_checker = FrameChecker::new(self.plan.mtu_max(), self.plan.has(Fault::Mtu));
        (frame_checker.startup_may_change, frame_checker.checks_messages) =
            (self.plan.undetected_corruption, !self.plan.undetected_corruption);
        frame_checker.regroups = self.plan.has(Fault::Regroup);
        self.net.watch(Box::new(
            move |_, port, frame| {
                if hosts.contains(&port) { frame_checker.on_frame(frame) } else { Ok(()) }
            },
        ));
    }

    /// A cable from each host to a switch, or one between two hosts.
    fn connect_links(&mut self) {
        let plan = &self.plan;
        if !plan.switched {
            let config = plan.cables[0].clone();
            self.cables.push(self.net.connect(self.ports[0], self.ports[1], config));
            return;
        }
        let (mut switch_ports, mut ids) = (Vec::new(), Vec::new());
        for (number, cable) in plan.cables.iter().enumerate() {
            let (id, port) = self.net.add_port(&switch_port(plan.mtu_max()));
            self.cables.push(self.net.connect(self.ports[number], id, cable.clone()));
            switch_ports.push(port);
            ids.push(id);
        }
        let devices = plan.hosts.iter().map(|host| &host.device);
        let devices = devices.chain(plan.hostile.iter().map(|hostile| &hostile.device));
        let macs: Vec<MacAddr> = devices.map(|device| device.mac).collect();
        self.net.add_node(Box::new(Switch::new(switch_ports, macs)), &ids);
    }

    fn add_host(&mut self, number: usize, queues: Vec<MemoryPort>) -> Result<(), String> {
        let plan = &self.plan.hosts[number];
        let builder = Stack::builder(plan.config.clone());
        let clock = HostClock::new(self.net.clock());
        let built = builder.build_replayable_cores(queues, clock.clone(), plan.secret);
        let built = built.map_err(text)?;
        let app = App::new(number, &built.0, plan, &self.plan.common, &self.oracle).map_err(text)?;
        let host = SharedNode::new(Host::new(number, clock, built, app, &self.oracle, plan));
        self.hosts.push((self.net.add_node(Box::new(host.clone()), &[self.ports[number]]), host));
        Ok(())
    }
}

/// The port of a switch, which accepts every frame of the hosts.
fn switch_port(mtu_bytes: u16) -> MemoryConfig {
    MemoryConfig {
        mtu_bytes,
        rx_frames: 128,
        tx_frames: 128,
        rx_ring_frames: 128,
        tx_ring_frames: 128,
        ..MemoryConfig::default()
    }
}
