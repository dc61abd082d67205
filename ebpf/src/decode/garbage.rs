//! Decodes garbage and the types in it. Pure.

use crate::event::{
    CapturedFrame, CapturedKind, CodeId, GarbageEvent, KindOwner, TypeEvent, TypeId,
};
use crate::wire::{
    BYTES_UNKNOWN, GarbageKindWire, GarbageWire, NO_OFFSET, OF_CLASS, TypeWire, read,
};
use gctrace_event::Garbage;
use zerocopy::FromBytes as _;

/// Names of a type.
pub(super) fn type_event(wire: &TypeWire) -> TypeEvent {
    let first = |bytes: &[u8], count: u32| bytes.iter().copied().take(count as usize).collect();
    TypeEvent {
        pid: wire.pid,
        id: TypeId { address: wire.r#type, identity: wire.identity },
        layout: wire.layout,
        name: wire.name.iter().copied().take_while(|byte| *byte != 0).collect(),
        qualname: first(&wire.qualname, wire.qualname_bytes),
        module: first(&wire.module, wire.module_bytes),
        method: match wire.method {
            0 => None,
            address => Some(CodeId { address, identity: wire.method_identity }),
        },
    }
}

/// `bytes`: the whole record; `None` if they are too short.
pub(super) fn garbage(bytes: &[u8]) -> Option<GarbageEvent> {
    let (wire, rest) = GarbageWire::read_from_prefix(bytes).ok()?;
    let kinds = rest.chunks_exact(size_of::<GarbageKindWire>());
    let kinds: Vec<CapturedKind> = kinds
        .take(wire.kinds as usize)
        .filter_map(read::<GarbageKindWire>)
        // Without a type if all its objects are listed by their code.
        .filter(|kind| kind.objects > 0)
        .map(|kind| captured_kind(&kind))
        .collect();
    Some(GarbageEvent {
        garbage: Garbage {
            pid: wire.pid,
            tid: wire.tid,
            at_ns: wire.at_ns,
            objects: wire.objects,
            cost_ns: Some(wire.cost_ns),
            ..Garbage::default()
        },
        layout: wire.layout,
        kinds,
    })
}

fn captured_kind(wire: &GarbageKindWire) -> CapturedKind {
    let (address, identity) = (wire.code, wire.code_identity);
    let owner = match wire.offset {
        OF_CLASS => KindOwner::Class(TypeId { address, identity }),
        offset => KindOwner::Code(CapturedFrame {
            code: CodeId { address, identity },
            offset: if offset != NO_OFFSET { Some(offset) } else { None },
        }),
    };
    CapturedKind {
        type_id: TypeId { address: wire.r#type, identity: wire.type_identity },
        owner: if address != 0 { Some(owner) } else { None },
        objects: wire.objects,
        bytes: if wire.bytes != BYTES_UNKNOWN { Some(wire.bytes) } else { None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KernelEvent;
    use crate::decode::decode;
    use crate::wire::EventKind;
    use zerocopy::IntoBytes as _;

    #[test]
    fn garbage_has_owners_and_known_sizes() {
        let kinds = [(0, 0, 10), (5, NO_OFFSET, 20), (5, 6, 30), (7, OF_CLASS, BYTES_UNKNOWN)];
        let event = GarbageWire {
            kind: EventKind::EVENT_GARBAGE.0,
            // One is missing.
            kinds: kinds.len() as u32 + 1,
            objects: 9,
            ..GarbageWire::default()
        };
        let mut bytes = event.as_bytes().to_vec();
        for (code, offset, size) in kinds {
            let kind = GarbageKindWire {
                code,
                offset,
                objects: 2,
                bytes: size,
                ..GarbageKindWire::default()
            };
            bytes.extend(kind.as_bytes());
        }
        bytes.extend(GarbageKindWire::default().as_bytes().iter().take(40));
        let Some(KernelEvent::Garbage(garbage)) = decode(&bytes) else {
            panic!("{bytes:?}");
        };
        assert_eq!(garbage.garbage.objects, 9);
        let id = |address| CodeId { address, identity: 0 };
        let code = |offset| Some(KindOwner::Code(CapturedFrame { code: id(5), offset }));
        let class = TypeId { address: 7, identity: 0 };
        let owners: Vec<_> = garbage.kinds.iter().map(|kind| kind.owner).collect();
        let class = Some(KindOwner::Class(class));
        assert_eq!(owners, [None, code(None), code(Some(6)), class]);
        let sizes: Vec<_> = garbage.kinds.iter().map(|kind| kind.bytes).collect();
        assert_eq!(sizes, [Some(10), Some(20), Some(30), None]);
    }
}
