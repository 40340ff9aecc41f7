//! Status codes (Base 1.4, 4.6.1; Fabrics 1.1, 2.2 and 3.3).

use core::fmt;

/// A status: the code and its type, and whether a retry is pointless (DNR).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

/// DNR, as a bit of the value.
const DO_NOT_RETRY: u16 = 1 << 14;
/// SC and SCT.
const CODE_MASK: u16 = 0x07ff;

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $value:expr, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Status = Status($value);)*

            /// Returns the specification's name of the code.
            pub fn name(self) -> &'static str {
                match self.code() {
                    $(code if code == Status::$name.code() => $text,)*
                    _ => "unknown status",
                }
            }
        }
    };
}

statuses! {
    /// 00h.
    SUCCESS = 0x000, "Successful Completion";
    /// 01h.
    INVALID_OPCODE = 0x001 | DO_NOT_RETRY, "Invalid Command Opcode";
    /// 02h.
    INVALID_FIELD = 0x002 | DO_NOT_RETRY, "Invalid Field in Command";
    /// 04h.
    DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
    /// 06h.
    INTERNAL_ERROR = 0x006, "Internal Error";
    /// 07h.
    ABORT_REQUESTED = 0x007, "Command Abort Requested";
    /// 0Bh.
    INVALID_NAMESPACE = 0x00b | DO_NOT_RETRY, "Invalid Namespace or Format";
    /// 0Ch.
    COMMAND_SEQUENCE_ERROR = 0x00c | DO_NOT_RETRY, "Command Sequence Error";
    /// 0Dh.
    INVALID_SGL_SEGMENT_DESCRIPTOR = 0x00d | DO_NOT_RETRY, "Invalid SGL Segment Descriptor";
    /// 0Fh.
    DATA_SGL_LENGTH_INVALID = 0x00f | DO_NOT_RETRY, "Data SGL Length Invalid";
    /// 11h.
    SGL_DESCRIPTOR_TYPE_INVALID = 0x011 | DO_NOT_RETRY, "SGL Descriptor Type Invalid";
    /// 16h.
    SGL_OFFSET_INVALID = 0x016 | DO_NOT_RETRY, "SGL Offset Invalid";
    /// 18h: the host identifier differs from that of the controller.
    HOST_IDENTIFIER_INCONSISTENT = 0x018 | DO_NOT_RETRY, "Host Identifier Inconsistent Format";
    /// 19h.
    KEEP_ALIVE_TIMEOUT_EXPIRED = 0x019 | DO_NOT_RETRY, "Keep Alive Timer Expired";
    /// 1Ah.
    KEEP_ALIVE_TIMEOUT_INVALID = 0x01a | DO_NOT_RETRY, "Keep Alive Timeout Invalid";
    /// 20h.
    NAMESPACE_WRITE_PROTECTED = 0x020 | DO_NOT_RETRY, "Namespace is Write Protected";
    /// 80h.
    LBA_OUT_OF_RANGE = 0x080 | DO_NOT_RETRY, "LBA Out of Range";
    /// 81h: no space is left for the data.
    CAPACITY_EXCEEDED = 0x081 | DO_NOT_RETRY, "Capacity Exceeded";
    /// 82h.
    NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
    /// 105h.
    ASYNC_EVENT_LIMIT_EXCEEDED = 0x105 | DO_NOT_RETRY, "Asynchronous Event Request Limit Exceeded";
    /// 109h.
    INVALID_LOG_PAGE = 0x109 | DO_NOT_RETRY, "Invalid Log Page";
    /// 10Dh.
    FEATURE_NOT_SAVEABLE = 0x10d | DO_NOT_RETRY, "Feature Identifier Not Saveable";
    /// 10Eh.
    FEATURE_NOT_CHANGEABLE = 0x10e | DO_NOT_RETRY, "Feature Not Changeable";
    /// 183h of the NVM command set: more ranges or blocks than DMRL, DMRSL or DMSL allow.
    COMMAND_SIZE_LIMIT_EXCEEDED = 0x183 | DO_NOT_RETRY, "Command Size Limit Exceeded";
    /// 180h of the Fabrics command set.
    CONNECT_INCOMPATIBLE_FORMAT = 0x180 | DO_NOT_RETRY, "Connect Incompatible Format";
    /// 181h.
    CONNECT_CONTROLLER_BUSY = 0x181, "Connect Controller Busy";
    /// 182h.
    CONNECT_INVALID_PARAMETERS = 0x182 | DO_NOT_RETRY, "Connect Invalid Parameters";
    /// 184h.
    CONNECT_INVALID_HOST = 0x184 | DO_NOT_RETRY, "Connect Invalid Host";
    /// 191h.
    AUTHENTICATION_REQUIRED = 0x191 | DO_NOT_RETRY, "Authentication Required";
    /// 280h.
    WRITE_FAULT = 0x280, "Write Fault";
    /// 281h.
    UNRECOVERED_READ_ERROR = 0x281, "Unrecovered Read Error";
    /// 285h.
    COMPARE_FAILURE = 0x285 | DO_NOT_RETRY, "Compare Failure";
}

impl Status {
    /// Returns the status in the last two bytes of a completion queue entry.
    pub fn from_field(field: u16) -> Self {
        Status(field >> 1)
    }

    /// Returns the last two bytes of a completion queue entry.
    pub fn to_field(self) -> u16 {
        self.0 << 1
    }

    /// Returns SC in the low byte and SCT above.
    pub fn code(self) -> u16 {
        self.0 & CODE_MASK
    }

    /// Returns whether the command may not be tried again.
    pub fn do_not_retry(self) -> bool {
        self.0 & DO_NOT_RETRY != 0
    }

    /// Returns whether the command succeeded.
    pub fn is_success(self) -> bool {
        self.code() == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#05x})", self.name(), self.code())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_keeps_its_code_and_its_retry_bit_in_the_field() {
        for status in [Status::SUCCESS, Status::INVALID_FIELD, Status::COMPARE_FAILURE, Status::WRITE_FAULT] {
            assert_eq!(Status::from_field(status.to_field()), status);
        }
        assert_eq!(Status::INVALID_FIELD.to_field(), 0x4002 << 1);
        assert_eq!(Status::CONNECT_INVALID_HOST.to_string(), "Connect Invalid Host (0x184)");
    }
}
