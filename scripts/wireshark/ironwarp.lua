-- What Wireshark's own iWARP dissector leaves out: Immediate Data (RFC 7306 s6), the names of atomic operations (RFC 7306
-- s5), the enhanced start-up frames of MPA revision 2 (RFC 6581 s9), and DDP over SCTP: session control and DDP segments
-- with their DDP-SSN (RFC 5043, RFC 6581 s7).
--
-- Use: wireshark -X lua_script:scripts/wireshark/ironwarp.lua capture.pcapng, or copy this file into the folder that
-- Help > About > Folders calls "Personal Lua Plugins". It adds a tree to packets that the dissector has been through, and
-- changes nothing in what that says. Let iWARP be looked for on every port:
--     -o tcp.try_heuristic_first:TRUE --disable-protocol rpcordma --disable-protocol smb_direct
-- Fields: ironwarp.immediate, ironwarp.solicited, ironwarp.atomic.operation, ironwarp.mpa.enhanced, .ird, .ord,
-- .peer_to_peer, .rtr_send, .rtr_write, .rtr_read, .private_data. Over SCTP: ironwarp.sctp.ssn, .function, .wrong (what
-- breaks RFC 5043), and the fields of MPA for IRD, ORD and private data.

local extra = Proto("ironwarp", "iWARP: RFC 7306 and RFC 6581")
local sctp = Proto("ironwarp.sctp", "DDP over SCTP: RFC 5043 and RFC 6581")

local OPCODES = { [8] = "Immediate Data", [9] = "Immediate Data with Solicited Event" }
local FUNCTIONS = {
    "Initiate", "Accept", "Reject", "Terminate", "Enhanced Initiate", "Enhanced Accept", "Enhanced Reject",
}
local TERMINATE, ENHANCED = 4, 5
local OPERATIONS = { [0] = "FetchAdd", [1] = "Swap", [2] = "CmpSwap" }

local fields = {
    opcode = ProtoField.uint8("ironwarp.opcode", "OpCode", base.DEC, OPCODES, 0x0f),
    immediate = ProtoField.bytes("ironwarp.immediate", "Immediate Data"),
    solicited = ProtoField.bool("ironwarp.solicited", "Solicited Event"),
    length = ProtoField.uint32("ironwarp.immediate.bad_length", "Octets that are no Immediate Data"),
    operation = ProtoField.string("ironwarp.atomic.operation", "Atomic operation"),
    enhanced = ProtoField.bool("ironwarp.mpa.enhanced", "Enhanced connection set-up (S)", 8, nil, 0x10),
    ird = ProtoField.uint16("ironwarp.mpa.ird", "Reads taken (IRD)", base.DEC, nil, 0x3fff),
    ord = ProtoField.uint16("ironwarp.mpa.ord", "Reads made (ORD)", base.DEC, nil, 0x3fff),
    peer = ProtoField.bool("ironwarp.mpa.peer_to_peer", "Peer-to-peer model (A)", 16, nil, 0x8000),
    rtr_send = ProtoField.bool("ironwarp.mpa.rtr_send", "Empty Send as indication (B)", 16, nil, 0x4000),
    rtr_write = ProtoField.bool("ironwarp.mpa.rtr_write", "Empty Write as indication (C)", 16, nil, 0x8000),
    rtr_read = ProtoField.bool("ironwarp.mpa.rtr_read", "Empty Read as indication (D)", 16, nil, 0x4000),
    private = ProtoField.bytes("ironwarp.mpa.private_data", "The application's private data"),
}
extra.fields = fields

local sctp_fields = {
    ssn = ProtoField.uint16("ironwarp.sctp.ssn", "DDP-SSN"),
    func = ProtoField.uint16("ironwarp.sctp.function", "Session control", base.DEC, FUNCTIONS),
    wrong = ProtoField.string("ironwarp.sctp.wrong", "Breaks RFC 5043"),
}
sctp.fields = sctp_fields

local opcode_field = Field.new("iwarp_rdma.opcode")
local ulpdu_field = Field.new("iwarp_mpa.ulpdulength")
local operation_field = Field.new("iwarp_rdma.atomic.opcode")
local revision_field = Field.new("iwarp_mpa.rev")
local private_length_field = Field.new("iwarp_mpa.pdlength")

-- RFC 5041 s4.3, RFC 7306 s6.2: behind the octet with the opcode come 4 reserved octets, queue, number and offset.
local UNTAGGED_REST = 1 + 4 + 4 + 4 + 4
local IMMEDIATE = 8
-- All of the header: the octet of DDP, that of RDMAP, and what is counted above.
local UNTAGGED = 1 + UNTAGGED_REST
-- RFC 5044 s7.1.1: the flags, the revision, the length of the private data.
local FLAGS_BEFORE_REVISION = 1
local PRIVATE_BEHIND_REVISION = 3

-- Octets from an offset of the buffer that a field lies in, or nothing where the capture ends before.
local function octets(field, at, length)
    local source = field.source
    if source and at >= 0 and at + length <= source:len() then
        return source:range(at, length)
    end
end

local function add_immediate(field, ulpdu, tree, info)
    local branch = tree:add(extra, octets(field, field.offset, 1), OPCODES[field.value])
    branch:add(fields.opcode, octets(field, field.offset, 1))
    branch:add(fields.solicited, octets(field, field.offset, 1), field.value == 9)
    local data = octets(field, field.offset + UNTAGGED_REST, IMMEDIATE)
    if ulpdu and ulpdu.value ~= UNTAGGED + IMMEDIATE then
        branch:add(fields.length, ulpdu.value - UNTAGGED)
    elseif data then
        branch:add(fields.immediate, data)
    end
    info:append(" [" .. OPCODES[field.value] .. "]")
end

-- RFC 6581 s9: the four octets in front of the application's private data, and that data. Returns a text for the list.
local function add_depths(data, branch)
    local ird, ord = data(0, 2), data(2, 2)
    branch:add(fields.peer, ird)
    branch:add(fields.rtr_send, ird)
    branch:add(fields.ird, ird)
    branch:add(fields.rtr_write, ord)
    branch:add(fields.rtr_read, ord)
    branch:add(fields.ord, ord)
    if data:len() > 4 then
        branch:add(fields.private, data(4))
    end
    return string.format("IRD %d ORD %d", ird:bitfield(2, 14), ord:bitfield(2, 14))
end

-- The S bit says that they are there.
local function add_startup(revision, length, tree, info)
    local flags = octets(revision, revision.offset - FLAGS_BEFORE_REVISION, 1)
    if revision.value ~= 2 or not flags then
        return
    end
    local branch = tree:add(extra, flags, "MPA revision 2")
    branch:add(fields.enhanced, flags)
    local at = revision.offset + PRIVATE_BEHIND_REVISION
    if flags:bitfield(3, 1) == 0 or length.value < 4 then
        return
    end
    local reads = octets(revision, at, length.value) or octets(revision, at, 4)
    if not reads then
        return
    end
    info:append(" [" .. add_depths(reads, branch) .. "]")
end

function extra.dissector(_, pinfo, tree)
    -- Each FPDU has one length and one opcode.
    local ulpdus = { ulpdu_field() }
    for at, field in ipairs({ opcode_field() }) do
        if OPCODES[field.value] then
            add_immediate(field, ulpdus[at], tree, pinfo.cols.info)
        end
    end
    for _, field in ipairs({ operation_field() }) do
        local name = OPERATIONS[field.value % 16]
        tree:add(fields.operation, octets(field, field.offset, 4), name or "unknown")
        pinfo.cols.info:append(" [" .. (name or "unknown atomic operation") .. "]")
    end
    local revisions, lengths = { revision_field() }, { private_length_field() }
    for at, field in ipairs(revisions) do
        add_startup(field, lengths[at], tree, pinfo.cols.info)
    end
end

register_postdissector(extra)

-- RFC 5043 s5.2: the identifiers of the payload, and the longest private data.
local SEGMENT, CONTROL, PRIVATE_MAX = 16, 17, 512

-- The dissector of DDP segments is Wireshark's, which has registered it for MPA.
local ddp = Dissector.get("iwarp_ddp_rdmap")

-- Session control: a function code and private data.
local function add_control(buffer, branch, info)
    local code, data = buffer(2, 2):uint(), buffer:len() > 4 and buffer(4)
    local name = FUNCTIONS[code] or "unknown function"
    local length = data and data:len() or 0
    branch:add(sctp_fields.func, buffer(2, 2))
    if not FUNCTIONS[code] then
        branch:add(sctp_fields.wrong, buffer(2, 2), "unknown function")
    elseif length > (code == TERMINATE and 0 or PRIVATE_MAX) then
        branch:add(sctp_fields.wrong, data, "private data of " .. length .. " octets")
    elseif (code == ENHANCED or code == ENHANCED + 1) and length < 4 then
        branch:add(sctp_fields.wrong, buffer(2, 2), "no IRD and ORD")
    elseif code >= ENHANCED and length >= 4 then
        name = name .. " " .. add_depths(data, branch)
    elseif data then
        branch:add(fields.private, data)
    end
    info:append(" [" .. name .. "]")
end

local function dissect(buffer, pinfo, tree, is_control)
    local branch = tree:add(sctp, buffer(0, math.min(buffer:len(), is_control and buffer:len() or 2)))
    if buffer:len() < 4 then
        branch:add(sctp_fields.wrong, buffer(), "a chunk of " .. buffer:len() .. " octets")
        return
    end
    branch:add(sctp_fields.ssn, buffer(0, 2))
    if is_control then
        add_control(buffer, branch, pinfo.cols.info)
    else
        ddp:call(buffer(2):tvb(), pinfo, tree)
    end
end

-- One protocol for each identifier, since a dissector is not told which it was called for.
function sctp.dissector(buffer, pinfo, tree)
    dissect(buffer, pinfo, tree, false)
end

local control = Proto("ironwarp.sctp.control", "DDP stream session control: RFC 5043 and RFC 6581")
function control.dissector(buffer, pinfo, tree)
    dissect(buffer, pinfo, tree, true)
end

DissectorTable.get("sctp.ppi"):add(SEGMENT, sctp)
DissectorTable.get("sctp.ppi"):add(CONTROL, control)
