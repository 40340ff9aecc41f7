//! The C API as a sequence of calls with handles that are right, stale, foreign or of another kind,
//! on two stacks that are linked by memory. Every pointer that a call gets keeps the promise of the
//! header and no more: lists, texts and structs are as long as they say, and registered memory is
//! freed when the library says that it is unused. So AddressSanitizer sees every access beyond
//! that, and LeakSanitizer what a closed object leaves behind.
//!
//! `Call::listed` has every function whose arguments need no more than their kind. A panic is
//! `IW_E_INTERNAL` in C; here it ends the run, as does an error number that no call may return.

mod call;
mod memory;
mod posts;
mod program;

use crate::Input;
use call::Call;
use capi::*;
use program::{Program, good};

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let mut program = Program::open(&mut input);
    while !input.is_empty() {
        let (kind, end) = (input.u8(), usize::from(input.flag()));
        let mut call = Call::new(&mut input, &mut program, end);
        match kind {
            0..40 => posts::send(&mut call),
            40..56 => posts::receive(&mut call),
            56..72 => posts::reap(&mut call),
            72..84 => memory::register(&mut call),
            84..90 => memory::deregister(&mut call),
            90..100 => memory::atomic(&mut call),
            100..102 => call.set_log(),
            102..104 => call.open_wrongly(),
            104..106 => call.address_texts(),
            _ => call.listed(kind - 106),
        }
        program.poll(usize::from(input.u8() % 16));
    }
    program.close();
}

macro_rules! listed {
    ($call:ident, $kind:ident; $($function:ident($($argument:ident),*);)*) => {{
        let mut number = $kind % [$(stringify!($function)),*].len() as u8;
        $(
            if number == 0 {
                // SAFETY: handles of this library, and memory as the header asks for.
                let answer = unsafe { $function($($call.$argument()),*) };
                return $call.end(answer);
            }
            number = number.wrapping_sub(1);
        )*
    }};
}

impl Call<'_, '_> {
    /// Calls the function of a number.
    fn listed(mut self, kind: u8) {
        let call = &mut self;
        listed! { call, kind;
            iw_capture_create(path, new_capture);
            iw_capture_flush(capture);
            iw_capture_close(capture);
            iw_stack_counter(stack, text, room);
            iw_stack_counter(stack, counter_name, room);
            iw_stack_core_counter(stack, few, counter_name, room);
            iw_stack_port_counter(stack, few, counter_name, room);
            iw_stack_counters(stack);
            iw_stack_counter_at(stack, number, list, size, room);
            iw_stack_cores(stack);
            iw_worker_take(stack, few, new_worker);
            iw_worker_poll(worker, number, sized);
            iw_worker_start(worker, no_processor);
            iw_worker_stop(worker);
            iw_worker_stop(worker);
            iw_worker_stop(worker);
            iw_worker_arm(worker);
            iw_worker_wake_fd(worker, room);
            iw_worker_start_capture(worker, capture, text);
            iw_worker_stop_capture(worker);
            iw_worker_link_up(worker);
            iw_worker_close(seldom_worker);
            iw_listen(ctx, address);
            iw_listen_bound(ctx, address, room);
            iw_listen_over(ctx, few, address, room);
            iw_unlisten(ctx, address);
            iw_unlisten_over(ctx, few, address);
            iw_lacks_atomics(ctx, address);
            iw_connect(ctx, qp, address, params);
            iw_connect(ctx, qp, address, params);
            iw_accept(ctx, request, qp, params);
            iw_accept(ctx, request, qp, params);
            iw_reject(ctx, request, list, count);
            iw_request_core(request);
            iw_disconnect(ctx, qp);
            iw_abort(ctx, qp);
            iw_ctx_open(stack, new_ctx);
            iw_ctx_close(seldom_ctx);
            iw_pd_alloc(ctx, new_pd);
            iw_limits_query(ctx, sized);
            iw_drain(ctx, deadline, sized);
            iw_event_arm(ctx);
            iw_event_fd(ctx, room);
            iw_event_poll(ctx, sized);
            iw_mr_query(mr, sized);
            iw_owner_core(ctx, mr, offset, room);
            iw_mw_create(ctx, pd, new_window);
            iw_mw_query(window, sized);
            iw_mw_invalidate(window);
            iw_mw_destroy(window);
            iw_fast_mr_create(ctx, pd, new_fast);
            iw_fast_mr_query(fast, sized);
            iw_fast_mr_invalidate(fast);
            iw_fast_mr_destroy(fast);
            iw_ports(ctx);
            iw_port_query(ctx, few, sized);
            iw_port_addresses(ctx, few, list, count);
            iw_conn_params_init_sized(any_room, size);
            iw_cq_attr_init_sized(any_room, size, number);
            iw_srq_attr_init_sized(any_room, size, number, few);
            iw_qp_attr_init_sized(any_room, size, cq);
            iw_cq_create(ctx, number, new_cq);
            iw_cq_create_with(ctx, cq_attr, new_cq);
            iw_cq_resize(ctx, cq, number);
            iw_cq_arm(ctx, cq, flag);
            iw_cq_fd(ctx, cq, room);
            iw_cq_query(ctx, cq, sized);
            iw_cq_destroy(ctx, cq);
            iw_srq_create(ctx, pd, number, few, new_srq);
            iw_srq_create_with(ctx, pd, srq_attr, new_srq);
            iw_srq_arm(ctx, srq, number);
            iw_srq_query(ctx, srq, sized);
            iw_srq_destroy(ctx, srq);
            iw_qp_create(ctx, pd, qp_attr, new_qp);
            iw_qp_create(ctx, pd, qp_attr, new_qp);
            iw_qp_query(ctx, qp, sized);
            iw_qp_destroy(ctx, qp);
            iw_qp_split(ctx, qp, new_send_poster, new_recv_poster);
            iw_cq_split(ctx, cq, new_cq_poller);
            iw_srq_split(ctx, srq, new_srq_poster);
            iw_cq_poller_arm(cq_poller, flag);
            iw_cq_poller_fd(cq_poller, room);
            iw_send_poster_close(send_poster);
            iw_recv_poster_close(recv_poster);
            iw_srq_poster_close(srq_poster);
            iw_cq_poller_close(cq_poller);
        }
    }

    /// Configurations that are refused.
    fn open_wrongly(mut self) {
        const TEXTS: [&std::ffi::CStr; 4] =
            [c"", c"[port]\ndevice.memory = {}\nmtu = 7\n", c"[core]\ncount = 0\n", c"\xff[port]"];
        let [one, other] = [0, 1].map(|_| TEXTS[self.input.below(4)].as_ptr());
        // SAFETY: texts and memory for handles.
        unsafe {
            assert!(!good(iw_stack_open_pair(one, other, self.few(), self.few(), self.room(), self.room())));
            assert!(!good(iw_stack_open(one, self.few(), self.room())));
            assert!(!good(iw_stack_open_file(other, self.few(), self.room())));
        }
    }

    /// Texts to addresses and back.
    fn address_texts(mut self) {
        let (text, mut parsed, mut again) = (self.text(), iw_addr::default(), iw_addr::default());
        // SAFETY: texts, and memory for values.
        unsafe {
            let is_known = good(iw_addr_parse(text, &mut parsed));
            let room = self.list();
            if good(iw_addr_text(&parsed, room, self.size())) && is_known {
                assert!(good(iw_addr_parse(room, &mut again)));
                assert_eq!((again.ip, again.port, again.family), (parsed.ip, parsed.port, parsed.family));
            }
        }
    }
}
