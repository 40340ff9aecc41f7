//! Builds hosts and cables from a plan.

use ironwarp::Stack;
use ironwarp_port::memory::{MemoryConfig, MemoryControl, MemoryPort};
use ironwarp_sim::SimNet;

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
        let count = plan.hosts.len();
        let (mut ports, mut devices) = (Vec::new(), vec![Vec::new(); count]);
        let mut host_queues: Vec<Vec<_>> = plan.hosts.iter().map(|_| Vec::new()).collect();
        for network in 0..plan.networks {
            for (number, host) in plan.hosts.iter().enumerate() {
                let (id, queues) = net.add_port_of_queues(&host.device_on(network), host.cores());
                ports.push(id);
                devices[number].extend(queues.iter().map(MemoryPort::control));
                host_queues[number].push(queues);
            }
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
        (0..plan.networks).for_each(|network| world.connect_links(network));
        world.watch();
        for (number, queues) in host_queues.into_iter().enumerate() {
            world.add_host(number, queues).map_err(|error| format!("host {number}: {error}"))?;
        }
        if let (Some(hostile), Some(port)) = (&plan.hostile, hostile_port) {
            let node = Hostile::new(plan, hostile, port, &world.oracle);
            world.net.add_node(Box::new(node), &world.ports[count * plan.networks..]);
        }
        Ok(world)
    }

    /// Checks every frame that a host sends. A frame from a switch may have been damaged on its way
    /// there.
    fn watch(&mut self) {
        let hosts = self.ports[..self.plan.hosts.len() * self.plan.networks].to_vec();
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

    /// A cable from each host to the switch of a network, or one between two hosts.
    fn connect_links(&mut self, network: usize) {
        let plan = &self.plan;
        let (cables, ports) = (plan.cables_of(network), &self.ports[network * plan.hosts.len()..]);
        let cables = &plan.cables[cables];
        if !plan.switched {
            self.cables.push(self.net.connect(ports[0], ports[1], cables[0].clone()));
            return;
        }
        let (mut switch_ports, mut ids) = (Vec::new(), Vec::new());
        for (port_id, cable) in ports.iter().zip(cables) {
            let (id, port) = self.net.add_port(&switch_port(plan.mtu_max()));
            self.cables.push(self.net.connect(*port_id, id, cable.clone()));
            switch_ports.push(port);
            ids.push(id);
        }
        let macs = plan.hosts.iter().map(|host| host.device_on(network).mac);
        let macs = macs.chain(plan.hostile.iter().map(|hostile| hostile.device.mac)).collect();
        self.net.add_node(Box::new(Switch::new(switch_ports, macs)), &ids);
    }

    /// Adds a host with the queues of its device on each network.
    fn add_host(&mut self, number: usize, queues: Vec<Vec<MemoryPort>>) -> Result<(), String> {
        let plan = &self.plan.hosts[number];
        let mut queues = queues.into_iter();
        let first = queues.next().unwrap_or_default();
        let builder =
            queues.fold(Stack::builder(plan.config.clone()), |all, queues| all.add_memory_ports(queues));
        let clock = HostClock::new(self.net.clock());
        let built = builder.build_replayable_cores(first, clock.clone(), plan.secret);
        let built = built.map_err(text)?;
        let app = App::new(number, &built.0, plan, &self.plan.common, &self.oracle).map_err(text)?;
        let host = SharedNode::new(Host::new(number, clock, built, app, &self.oracle, plan));
        let ports = self.ports.iter().skip(number).step_by(self.plan.hosts.len()).copied();
        let ports: Vec<_> = ports.take(self.plan.networks).collect();
        self.hosts.push((self.net.add_node(Box::new(host.clone()), &ports), host));
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
