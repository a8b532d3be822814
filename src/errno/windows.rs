//! Errno values for Windows, which has none. Names and numbers are those of Node on Windows:
//! `util.getSystemErrorName(-number)` returns the name.

use std::fmt;
use std::io;

macro_rules! errnos {
    ($($name:ident = $number:literal $text:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        #[allow(clippy::upper_case_acronyms)] // The usual spelling of errno names.
        pub enum Errno {
            $($name = $number,)*
        }

        impl Errno {
            const ALL: &[Self] = &[$(Self::$name,)*];

            fn desc(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

errnos! {
    EACCES = 4092 "Permission denied",
    EADDRNOTAVAIL = 4090 "Address not available",
    EAGAIN = 4088 "Resource temporarily unavailable",
    EBADF = 4083 "Bad file descriptor",
    EBUSY = 4082 "Resource busy or locked",
    ECONNREFUSED = 4078 "Connection refused",
    ECONNRESET = 4077 "Connection reset by peer",
    EEXIST = 4075 "File already exists",
    EINVAL = 4071 "Invalid argument",
    EIO = 4070 "I/O error",
    EISDIR = 4068 "Illegal operation on a directory",
    ELOOP = 4067 "Too many symbolic links encountered",
    EMFILE = 4066 "Too many open files",
    ENAMETOOLONG = 4064 "Name too long",
    ENFILE = 4061 "File table overflow",
    ENODEV = 4059 "No such device",
    ENOENT = 4058 "No such file or directory",
    ENOMEM = 4057 "Not enough memory",
    ENOSPC = 4055 "No space left on device",
    ENOSYS = 4054 "Function not implemented",
    ENOTDIR = 4052 "Not a directory",
    ENOTSUP = 4049 "Operation not supported",
    EPERM = 4048 "Operation not permitted",
    EPIPE = 4047 "Broken pipe",
    EPROTO = 4046 "Protocol error",
    EROFS = 4043 "Read-only file system",
    ESRCH = 4040 "No such process",
    ETIMEDOUT = 4039 "Connection timed out",
    ETXTBSY = 4038 "Text file is busy",
    EXDEV = 4037 "Cross-device link not permitted",
    EFBIG = 4036 "File too large",
    ENOTTY = 4029 "Inappropriate ioctl for device",
    EOVERFLOW = 4026 "Value too large for defined data type",
    EFTYPE = 4028 "Inappropriate file type or format",
    E2BIG = 4093 "Argument list too long",
    EUNKNOWN = 4094 "Unknown error",
}

impl Errno {
    pub fn from_raw(number: i32) -> Self {
        Self::ALL.iter().copied().find(|&errno| errno as i32 == number).unwrap_or(Self::EUNKNOWN)
    }

    /// The error of the last system call of this thread.
    #[cfg(windows)]
    pub fn last() -> Self {
        Self::of(&io::Error::last_os_error())
    }

    pub fn of(error: &io::Error) -> Self {
        let wrapped = error.get_ref().and_then(|inner| inner.downcast_ref().copied());
        let from_system = || error.raw_os_error().map(|code| Self::of_win32(code.cast_unsigned()));
        wrapped.or_else(from_system).unwrap_or_else(|| Self::of_kind(error.kind()))
    }

    /// Translates a Win32 error code as Node does. A code that Node does not translate is
    /// `EUNKNOWN`.
    pub fn of_win32(code: u32) -> Self {
        match code {
            // ERROR_NOACCESS, ERROR_ELEVATION_REQUIRED, ERROR_CANT_ACCESS_FILE
            998 | 740 | 1920 => Self::EACCES,
            // ERROR_ACCESS_DENIED, ERROR_PRIVILEGE_NOT_HELD: Node reports EPERM for both.
            5 | 1314 => Self::EPERM,
            // ERROR_NO_DATA (the pipe is closing), ERROR_PIPE_NOT_CONNECTED, ERROR_BAD_PIPE,
            // ERROR_BROKEN_PIPE
            109 | 230 | 232 | 233 => Self::EPIPE,
            // ERROR_SHARING_VIOLATION, ERROR_LOCK_VIOLATION, ERROR_PIPE_BUSY,
            // ERROR_USER_MAPPED_FILE
            32 | 33 | 231 | 1224 => Self::EBUSY,
            // ERROR_FILE_EXISTS, ERROR_ALREADY_EXISTS
            80 | 183 => Self::EEXIST,
            // ERROR_FILE_NOT_FOUND, ERROR_PATH_NOT_FOUND, ERROR_INVALID_DRIVE, ERROR_BAD_NETPATH,
            // ERROR_BAD_NET_NAME, ERROR_INVALID_NAME, ERROR_BAD_PATHNAME, ERROR_MOD_NOT_FOUND,
            // ERROR_DIRECTORY
            2 | 3 | 15 | 53 | 67 | 123 | 126 | 161 | 267 => Self::ENOENT,
            // ERROR_INVALID_HANDLE
            6 => Self::EBADF,
            // ERROR_NOT_ENOUGH_MEMORY, ERROR_OUTOFMEMORY, ERROR_COMMITMENT_LIMIT,
            // ERROR_NO_SYSTEM_RESOURCES
            8 | 14 | 1455 | 1450 => Self::ENOMEM,
            // ERROR_INVALID_DATA, ERROR_INVALID_PARAMETER
            13 | 87 => Self::EINVAL,
            // ERROR_TOO_MANY_OPEN_FILES
            4 => Self::EMFILE,
            // ERROR_DISK_FULL, ERROR_HANDLE_DISK_FULL
            112 | 39 => Self::ENOSPC,
            // ERROR_NOT_SUPPORTED, ERROR_CALL_NOT_IMPLEMENTED
            50 => Self::ENOTSUP,
            120 => Self::ENOSYS,
            // ERROR_FILENAME_EXCED_RANGE
            206 => Self::ENAMETOOLONG,
            // ERROR_WRITE_PROTECT
            19 => Self::EROFS,
            // ERROR_NOT_SAME_DEVICE
            17 => Self::EXDEV,
            // ERROR_SEM_TIMEOUT, WAIT_TIMEOUT
            121 | 258 => Self::ETIMEDOUT,
            // ERROR_BAD_EXE_FORMAT, ERROR_EXE_MACHINE_TYPE_MISMATCH
            193 | 216 => Self::EFTYPE,
            // ERROR_CANT_RESOLVE_FILENAME
            1921 => Self::ELOOP,
            _ => Self::EUNKNOWN,
        }
    }

    fn of_kind(kind: io::ErrorKind) -> Self {
        match kind {
            io::ErrorKind::NotFound => Self::ENOENT,
            io::ErrorKind::PermissionDenied => Self::EACCES,
            io::ErrorKind::AlreadyExists => Self::EEXIST,
            io::ErrorKind::BrokenPipe => Self::EPIPE,
            io::ErrorKind::TimedOut => Self::ETIMEDOUT,
            io::ErrorKind::WouldBlock => Self::EAGAIN,
            io::ErrorKind::OutOfMemory => Self::ENOMEM,
            io::ErrorKind::StorageFull => Self::ENOSPC,
            io::ErrorKind::ResourceBusy => Self::EBUSY,
            io::ErrorKind::InvalidInput => Self::EINVAL,
            _ => Self::EIO,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}: {}", self.desc())
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::other(errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_errno_has_a_unique_number() {
        for &errno in Errno::ALL {
            assert_eq!(Errno::from_raw(errno as i32), errno);
        }
        assert_eq!(Errno::from_raw(0), Errno::EUNKNOWN);
    }

    #[test]
    fn a_win32_error_gets_the_name_that_node_gives_it() {
        for (code, expected) in [
            (2, Errno::ENOENT),
            (5, Errno::EPERM),
            (32, Errno::EBUSY),
            (87, Errno::EINVAL),
            (0xdead, Errno::EUNKNOWN),
        ] {
            assert_eq!(Errno::of_win32(code), expected);
        }
        assert_eq!(Errno::of(&io::ErrorKind::NotFound.into()), Errno::ENOENT);
    }

    /// Callers check for these names: to retry a start, to report a missing folder, or a file that
    /// is not a program.
    #[test]
    fn every_error_that_callers_check_for_has_its_own_errno() {
        for (code, expected) in [
            (740, Errno::EACCES),
            (232, Errno::EPIPE),
            (183, Errno::EEXIST),
            (267, Errno::ENOENT),
            (6, Errno::EBADF),
            (1455, Errno::ENOMEM),
            (4, Errno::EMFILE),
            (112, Errno::ENOSPC),
            (206, Errno::ENAMETOOLONG),
            (19, Errno::EROFS),
            (17, Errno::EXDEV),
            (258, Errno::ETIMEDOUT),
            (193, Errno::EFTYPE),
            (1921, Errno::ELOOP),
            (50, Errno::ENOTSUP),
            (120, Errno::ENOSYS),
        ] {
            assert_eq!(Errno::of_win32(code), expected, "{code}");
        }
    }

    #[test]
    fn an_errno_survives_conversion_to_an_io_error() {
        for &errno in Errno::ALL {
            let error = io::Error::from(errno);
            assert_eq!((Errno::of(&error), error.to_string()), (errno, errno.to_string()));
        }
    }

    #[test]
    fn an_io_error_without_a_code_gets_its_errno_from_its_kind() {
        for (kind, expected) in [
            (io::ErrorKind::PermissionDenied, Errno::EACCES),
            (io::ErrorKind::AlreadyExists, Errno::EEXIST),
            (io::ErrorKind::BrokenPipe, Errno::EPIPE),
            (io::ErrorKind::TimedOut, Errno::ETIMEDOUT),
            (io::ErrorKind::WouldBlock, Errno::EAGAIN),
            (io::ErrorKind::OutOfMemory, Errno::ENOMEM),
            (io::ErrorKind::StorageFull, Errno::ENOSPC),
            (io::ErrorKind::ResourceBusy, Errno::EBUSY),
            (io::ErrorKind::InvalidInput, Errno::EINVAL),
            (io::ErrorKind::UnexpectedEof, Errno::EIO),
        ] {
            assert_eq!(Errno::of(&kind.into()), expected, "{kind:?}");
        }
    }

    /// The format is Node's: the name first, then the meaning.
    #[test]
    fn every_error_displays_its_name_and_its_meaning() {
        assert_eq!(Errno::EACCES.to_string(), "EACCES: Permission denied");
        for &errno in Errno::ALL {
            let text = errno.to_string();
            let (name, meaning) = text.split_once(": ").unwrap();
            assert_eq!(name, format!("{errno:?}"));
            assert!(meaning.starts_with(char::is_uppercase) && !meaning.ends_with('.'), "{text}");
        }
    }
}
