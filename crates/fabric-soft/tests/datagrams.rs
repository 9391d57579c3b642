//! What the software adapter does with datagrams that are too long for their receives.

use base::memory::WriteRange;
use fabric::{
    Access, ConnectOptions, Context, DatagramAddress, Destination, LocalMemory, Operation, Payload, Qkey,
    QueuePairAttributes, QueuePairState, ReceiveRequest, SendRequest, Transport, WcStatus, WorkCompletion,
};
use fabric_soft::{LoopbackHub, SoftContext};

const KEY: Qkey = Qkey(0x1111);
/// In front of a datagram.
const HEADER_BYTES: u32 = 40;

#[test]
fn a_datagram_too_long_for_its_receive_ends_the_receiving_queue_pair_alone() {
    // The last byte of the header's place and the datagram fits, or does not.
    for (len, status) in [(HEADER_BYTES + 8, WcStatus::Success), (HEADER_BYTES + 7, WcStatus::LocalLengthError)] {
        let hub = LoopbackHub::new();
        let mut sides = [(); 2].map(|()| {
            let mut side = SoftContext::new(hub.link().expect("a bell"));
            let domain = side.allocate_protection_domain().expect("a domain");
            let completions = side.create_completion_queue(16).expect("a queue");
            let mut attributes = QueuePairAttributes::new(domain, completions);
            attributes.transport = Transport::UnreliableDatagram;
            let qp = side.create_queue_pair(&attributes).expect("a queue pair");
            let options = ConnectOptions { qkey: KEY, ..ConnectOptions::default() };
            fabric::connect(&mut side, qp, None, &options).expect("ready");
            (side, domain, completions, qp)
        });
        let [(here, domain, sent, from), (there, their_domain, received, to)] = &mut sides;
        let words: &'static mut [u64] = Box::leak(vec![u64::MAX; 16].into_boxed_slice());
        let memory = words.as_mut_ptr().cast::<u8>();
        // SAFETY: leaked memory is valid for ever, and is reached through raw pointers only.
        let range = unsafe { WriteRange::new(memory, 128) };
        let region = there.register(*their_domain, LocalMemory::Target(range), Access::LOCAL).expect("a region");
        for id in [1, 2] {
            let list = [region.part(0, len)];
            assert_eq!(there.post_receive(*to, &[ReceiveRequest { id, list: &list }]), Ok(1));
        }
        let endpoint = there.endpoint(*to).expect("an endpoint");
        let address = here.create_address_handle(*domain, DatagramAddress::Endpoint(&endpoint)).expect("the way there");
        let mut request = SendRequest::new(3, Operation::Send, Payload::Inline(b"datagram"));
        request.destination = Destination::Datagram { address, qp: endpoint.qp(), qkey: KEY };
        assert_eq!(here.post_send(*from, &[request]), Ok(1));
        let mut into = [WorkCompletion::default(); 4];
        assert_eq!(here.poll(*sent, &mut into), Ok(1));
        assert_eq!((into[0].id, into[0].status), (3, WcStatus::Success), "its sender does not learn of it");
        let count = there.poll(*received, &mut into).expect("a whole queue");
        let ended: Vec<_> = into[..count].iter().map(|done| (done.id, done.status)).collect();
        // SAFETY: inside the leaked memory; no adapter writes between polls.
        let untouched = (0..128).filter(|at| unsafe { memory.add(*at).read_volatile() } == 0xff).count();
        if status == WcStatus::Success {
            assert_eq!((ended, there.queue_pair_state(*to)), (vec![(1, status)], Ok(QueuePairState::ReadyToSend)));
            assert_eq!(untouched, 128 - 8);
        } else {
            let flushed = (2, WcStatus::WorkRequestFlushed);
            assert_eq!((ended, there.queue_pair_state(*to)), (vec![(1, status), flushed], Ok(QueuePairState::Error)));
            assert_eq!(untouched, 128, "nothing of it is written");
        }
        assert_eq!(here.queue_pair_state(*from), Ok(QueuePairState::ReadyToSend));
    }
}
