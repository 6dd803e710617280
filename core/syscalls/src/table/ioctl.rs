//! The commands of `ioctl` whose number does not tell the size of their argument.
//!
//! Numbers made by the macros `_IOR`, `_IOW` and `_IOWR` carry a size; it is a lower bound, since arrays may follow, so
//! that the memory is held. Older numbers do not; the common ones are here. All others are held as one page.

use super::row::{by, reads, updates, writes};
use crate::rule::Extent::{AtLeast, Bytes, Encoded};
use crate::rule::Rule::{Direct, Pass};
use crate::rule::{Command, Errno, Rule};

const INT_IN: Rule = Direct(&[reads(2, Bytes(4))]);
const INT_OUT: Rule = Direct(&[writes(2, Bytes(4))]);
const LONG_OUT: Rule = Direct(&[writes(2, Bytes(8))]);
const TERMIOS_IN: Rule = Direct(&[reads(2, Bytes(36))]);
const TERMIO_IN: Rule = Direct(&[reads(2, Bytes(18))]);
const TIME_OUT: Rule = Direct(&[writes(2, Bytes(16))]);
const INTERFACE: Rule = Direct(&[updates(2, Bytes(40))]);
const ROUTE: Rule = Direct(&[reads(2, Bytes(120))]);

pub(super) const IOCTL: Command = by(
    1,
    &[
        // FIONREAD, FIONBIO, FIOASYNC, FIOQSIZE; FIONCLEX, FIOCLEX have no argument.
        (0x541b, INT_OUT),
        (0x5421, INT_IN),
        (0x5452, INT_IN),
        (0x5460, LONG_OUT),
        (0x5450, Pass),
        (0x5451, Pass),
        // TCGETS, TCSETS, TCSETSW, TCSETSF.
        (0x5401, Direct(&[writes(2, Bytes(36))])),
        (0x5402, TERMIOS_IN),
        (0x5403, TERMIOS_IN),
        (0x5404, TERMIOS_IN),
        // TCGETA, TCSETA, TCSETAW, TCSETAF.
        (0x5405, Direct(&[writes(2, Bytes(18))])),
        (0x5406, TERMIO_IN),
        (0x5407, TERMIO_IN),
        (0x5408, TERMIO_IN),
        // TCSBRK, TCXONC, TCFLSH, TCSBRKP; TIOCEXCL, TIOCNXCL, TIOCSCTTY, TIOCCONS, TIOCNOTTY.
        (0x5409, Pass),
        (0x540a, Pass),
        (0x540b, Pass),
        (0x5425, Pass),
        (0x540c, Pass),
        (0x540d, Pass),
        (0x540e, Pass),
        (0x541d, Pass),
        (0x5422, Pass),
        // TIOCGPGRP, TIOCSPGRP, TIOCGSID, TIOCOUTQ, TIOCSTI, TIOCGWINSZ, TIOCSWINSZ.
        (0x540f, INT_OUT),
        (0x5410, INT_IN),
        (0x5429, INT_OUT),
        (0x5411, INT_OUT),
        (0x5412, Direct(&[reads(2, Bytes(1))])),
        (0x5413, LONG_OUT),
        (0x5414, Direct(&[reads(2, Bytes(8))])),
        // TIOCMGET, TIOCMBIS, TIOCMBIC, TIOCMSET, TIOCGSOFTCAR, TIOCSSOFTCAR.
        (0x5415, INT_OUT),
        (0x5416, INT_IN),
        (0x5417, INT_IN),
        (0x5418, INT_IN),
        (0x5419, INT_OUT),
        (0x541a, INT_IN),
        // TIOCGSERIAL, TIOCSSERIAL, TIOCPKT, TIOCSETD, TIOCGETD, TIOCSERGETLSR, TIOCGICOUNT.
        (0x541e, Direct(&[updates(2, Bytes(72))])),
        (0x541f, Direct(&[reads(2, Bytes(72))])),
        (0x5420, INT_IN),
        (0x5423, INT_IN),
        (0x5424, INT_OUT),
        (0x5459, INT_OUT),
        (0x545d, Direct(&[writes(2, Bytes(80))])),
        // FIOSETOWN, SIOCSPGRP, FIOGETOWN, SIOCGPGRP, SIOCATMARK, SIOCGSTAMP, SIOCGSTAMPNS, SIOCOUTQNSD.
        (0x8901, INT_IN),
        (0x8902, INT_IN),
        (0x8903, INT_OUT),
        (0x8904, INT_OUT),
        (0x8905, INT_OUT),
        (0x8906, TIME_OUT),
        (0x8907, TIME_OUT),
        (0x894b, INT_OUT),
        // SIOCADDRT, SIOCDELRT.
        (0x890b, ROUTE),
        (0x890c, ROUTE),
        // Of an interface: SIOCGIF- and SIOCSIF- NAME, FLAGS, ADDR, DSTADDR, BRDADDR, NETMASK, METRIC, MTU, HWADDR,
        // INDEX, TXQLEN.
        (0x8910, INTERFACE),
        (0x8913, INTERFACE),
        (0x8914, INTERFACE),
        (0x8915, INTERFACE),
        (0x8916, INTERFACE),
        (0x8917, INTERFACE),
        (0x8918, INTERFACE),
        (0x8919, INTERFACE),
        (0x891a, INTERFACE),
        (0x891b, INTERFACE),
        (0x891c, INTERFACE),
        (0x891d, INTERFACE),
        (0x891e, INTERFACE),
        (0x8921, INTERFACE),
        (0x8922, INTERFACE),
        (0x8923, INTERFACE),
        (0x8924, INTERFACE),
        (0x8927, INTERFACE),
        (0x8933, INTERFACE),
        (0x8942, INTERFACE),
        (0x8943, INTERFACE),
        // SIOCGIFCONF, SIOCETHTOOL: they hold addresses.
        (0x8912, Direct(&[updates(2, AtLeast(16))])),
        (0x8946, Direct(&[updates(2, AtLeast(40))])),
        // FIBMAP, FIGETBSZ, BLKGETSIZE, BLKSSZGET, BLKFLSBUF.
        (1, Direct(&[updates(2, Bytes(4))])),
        (2, INT_OUT),
        (0x1260, LONG_OUT),
        (0x1268, INT_OUT),
        (0x1261, Pass),
        // VFIO_IOMMU_MAP_DMA, IOMMU_IOAS_MAP: memory for a device, for good. Answered as by a driver without them.
        (0x3b71, Rule::Refuse(Errno::ENOTTY)),
        (0x3b85, Rule::Refuse(Errno::ENOTTY)),
    ],
    Direct(&[updates(2, Encoded(1))]),
);
