"""Two processes of pyverbs, rdma-core's Python binding, one end each: `pyverbs_send.py ADDRESS` listens, `pyverbs_send.py
ADDRESS client` connects. Both query the device and make its objects, exchange Sends, and the client writes and reads the
server's memory. All data is compared. Exit code 0: all was right."""

import sys

import pyverbs.cm_enums as ce
import pyverbs.enums as e
from pyverbs.cmid import CMID, AddrInfo
from pyverbs.cq import CQ, CompChannel
from pyverbs.device import Context, get_device_list
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.pyverbs_error import PyverbsRDMAError
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.srq import SRQ, SrqInitAttr, SrqAttr
from pyverbs.wr import SGE, RecvWR

PORT = "7471"
MESSAGES = 20
BYTES = 4096
checks = 0


def check(condition, what):
    global checks
    checks += 1
    if not condition:
        sys.exit(f"pyverbs: {what}")


def query():
    """The device as the kernel's would be seen."""
    devices = get_device_list()
    check([device.name for device in devices] == [b"ironwarp0"], "another list of devices")
    check(devices[0].transport_type == e.IBV_TRANSPORT_IWARP, "not an iWARP device")
    context = Context(name="ironwarp0")
    attributes = context.query_device()
    check(attributes.max_qp > 0 and attributes.phys_port_cnt == 1, "no queue pairs, or no port")
    port = context.query_port(1)
    check(port.state == e.IBV_PORT_ACTIVE and port.link_layer == e.IBV_LINK_LAYER_ETHERNET, "the port is not active")
    check(context.query_gid(1, 0).gid is not None, "no GID")
    return context


def objects(context):
    """Each object once, in use by the next. A queue pair without a connection flushes its receive in the error state."""
    with PD(context) as domain, CompChannel(context) as channel, CQ(context, 16, None, channel, 0) as queue:
        region = MR(domain, BYTES, e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE)
        region.write("pyverbs", 7)
        check(region.read(7, 0) == b"pyverbs" and region.lkey == region.rkey, "the region is not what was written")
        SRQ(domain, SrqInitAttr(SrqAttr(max_wr=8))).close()
        cap = QPCap(max_send_wr=4, max_recv_wr=4)
        pair = QP(domain, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=queue, rcq=queue, cap=cap), QPAttr())
        pair.post_recv(RecvWR(7, 1, [SGE(region.buf, 64, region.lkey)]))
        pair.modify(QPAttr(qp_state=e.IBV_QPS_ERR), e.IBV_QP_STATE)
        count, completions = queue.poll(4)
        check(count == 1 and completions[0].wr_id == 7, "the receive was not flushed")
        check(completions[0].status == e.IBV_WC_WR_FLUSH_ERR, "the receive was not flushed")
        pair.close()
        region.close()
        try:
            QP(domain, QPInitAttr(qp_type=e.IBV_QPT_UD, scq=queue, rcq=queue, cap=cap), QPAttr())
            check(False, "a datagram queue pair was created")
        except PyverbsRDMAError as error:
            check("not supported" in str(error), f"another error: {error}")


def pattern(number):
    return bytes((number * 31 + at) % 251 for at in range(BYTES))


def queue_attributes():
    return QPInitAttr(qp_type=e.IBV_QPT_RC, cap=QPCap(max_send_wr=8, max_recv_wr=MESSAGES))


def end(identifier):
    """Memory of one end: a posted receive for each message, and a message to send."""
    inboxes = [identifier.reg_msgs(BYTES) for _ in range(MESSAGES)]
    for inbox in inboxes:
        identifier.post_recv(inbox, BYTES)
    return inboxes, identifier.reg_msgs(BYTES)


def receive(identifier, inbox, number):
    done = identifier.get_recv_comp()
    check(done.status == e.IBV_WC_SUCCESS and done.byte_len == BYTES, f"receive {number}: {done}")
    check(inbox.read(BYTES, 0) == pattern(number), f"message {number} is wrong")


def complete(identifier, what):
    done = identifier.get_send_comp()
    check(done.status == e.IBV_WC_SUCCESS, f"{what}: {done}")


def send(identifier, outbox, number):
    outbox.write(pattern(number), BYTES)
    identifier.post_send(outbox, e.IBV_SEND_SIGNALED, BYTES)
    complete(identifier, f"send {number}")


def serve(address):
    information = AddrInfo(src=address, src_service=PORT, port_space=ce.RDMA_PS_TCP, flags=ce.RAI_PASSIVE)
    listener = CMID(creator=information, qp_init_attr=queue_attributes())
    listener.listen()
    identifier = listener.get_request()
    inboxes, outbox = end(identifier)
    written, offered = identifier.reg_write(BYTES), identifier.reg_read(BYTES)
    offered.write(pattern(88), BYTES)
    identifier.accept()
    receive(identifier, inboxes[0], 0)
    places = [(region.buf.to_bytes(8, "big") + region.rkey.to_bytes(4, "big")) for region in (written, offered)]
    outbox.write(b"".join(places), 24)
    identifier.post_send(outbox, e.IBV_SEND_SIGNALED, BYTES)
    complete(identifier, "the offer")
    for number in range(1, MESSAGES - 1):
        receive(identifier, inboxes[number], number)
        send(identifier, outbox, number)
    receive(identifier, inboxes[-1], MESSAGES - 1)
    check(written.read(BYTES, 0) == pattern(77), "what was written is wrong")
    identifier.disconnect()


def connect(address):
    information = AddrInfo(dst=address, dst_service=PORT, port_space=ce.RDMA_PS_TCP)
    identifier = CMID(creator=information, qp_init_attr=queue_attributes())
    inboxes, outbox = end(identifier)
    sink = identifier.reg_write(BYTES)
    identifier.connect()
    send(identifier, outbox, 0)
    check(identifier.get_recv_comp().status == e.IBV_WC_SUCCESS, "no offer")
    offer = inboxes[0].read(24, 0)
    (written, written_key), (offered, offered_key) = (
        (int.from_bytes(offer[at:at + 8], "big"), int.from_bytes(offer[at + 8:at + 12], "big")) for at in (0, 12))
    for number in range(1, MESSAGES - 1):
        send(identifier, outbox, number)
        receive(identifier, inboxes[number], number)
    outbox.write(pattern(77), BYTES)
    identifier.post_write(outbox, BYTES, written, written_key, e.IBV_SEND_SIGNALED)
    complete(identifier, "the Write")
    identifier.post_read(sink, BYTES, offered, offered_key, e.IBV_SEND_SIGNALED)
    complete(identifier, "the Read")
    check(sink.read(BYTES, 0) == pattern(88), "what was read is wrong")
    send(identifier, outbox, MESSAGES - 1)
    identifier.disconnect()


def main():
    objects(query())
    if len(sys.argv) > 2:
        connect(sys.argv[1])
    else:
        serve(sys.argv[1])
    print(f"pyverbs: {checks} checks passed")


main()
