//! The shapes of OTLP's messages, for the memory that a request takes.

use crate::format::decoded_size::FieldShape::{Bytes, Message, Numbers};
use crate::format::decoded_size::MessageShape;
use opentelemetry_proto::tonic::collector::profiles::v1development::ExportProfilesServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, EntityRef, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::profiles::v1development as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;

/// An export request.
pub(super) static REQUEST: MessageShape = MessageShape {
    size: size_of::<ExportProfilesServiceRequest>(),
    fields: &[(1, Message(&RESOURCE_PROFILES)), (2, Message(&DICTIONARY))],
};

static RESOURCE_PROFILES: MessageShape = MessageShape {
    size: size_of::<otlp::ResourceProfiles>(),
    fields: &[(1, Message(&RESOURCE)), (2, Message(&SCOPE_PROFILES)), (3, Bytes)],
};

static RESOURCE: MessageShape = MessageShape {
    size: size_of::<Resource>(),
    fields: &[(1, Message(&KEY_VALUE)), (3, Message(&ENTITY))],
};

static ENTITY: MessageShape = MessageShape {
    size: size_of::<EntityRef>(),
    fields: &[(1, Bytes), (2, Bytes), (3, Bytes), (4, Bytes)],
};

static SCOPE_PROFILES: MessageShape = MessageShape {
    size: size_of::<otlp::ScopeProfiles>(),
    fields: &[(1, Message(&SCOPE)), (2, Message(&PROFILE)), (3, Bytes)],
};

static SCOPE: MessageShape = MessageShape {
    size: size_of::<InstrumentationScope>(),
    fields: &[(1, Bytes), (2, Bytes), (3, Message(&KEY_VALUE))],
};

static PROFILE: MessageShape = MessageShape {
    size: size_of::<otlp::Profile>(),
    fields: &[
        (2, Message(&SAMPLE)),
        (7, Bytes),
        (9, Bytes),
        (10, Bytes),
        (11, Numbers(4)),
    ],
};

static SAMPLE: MessageShape = MessageShape {
    size: size_of::<otlp::Sample>(),
    fields: &[(2, Numbers(4)), (4, Numbers(8)), (5, Numbers(8))],
};

static DICTIONARY: MessageShape = MessageShape {
    size: size_of::<otlp::ProfilesDictionary>(),
    fields: &[
        (1, Message(&MAPPING)),
        (2, Message(&LOCATION)),
        (3, Message(&FUNCTION)),
        (4, Message(&LINK)),
        (5, Bytes),
        (6, Message(&ATTRIBUTE)),
        (7, Message(&STACK)),
    ],
};

static MAPPING: MessageShape = MessageShape {
    size: size_of::<otlp::Mapping>(),
    fields: &[(5, Numbers(4))],
};

static LOCATION: MessageShape = MessageShape {
    size: size_of::<otlp::Location>(),
    fields: &[(3, Message(&LINE)), (4, Numbers(4))],
};

static LINE: MessageShape = MessageShape {
    size: size_of::<otlp::Line>(),
    fields: &[],
};

static FUNCTION: MessageShape = MessageShape {
    size: size_of::<otlp::Function>(),
    fields: &[],
};

static LINK: MessageShape = MessageShape {
    size: size_of::<otlp::Link>(),
    fields: &[(1, Bytes), (2, Bytes)],
};

static STACK: MessageShape = MessageShape {
    size: size_of::<otlp::Stack>(),
    fields: &[(1, Numbers(4))],
};

static ATTRIBUTE: MessageShape = MessageShape {
    size: size_of::<otlp::KeyValueAndUnit>(),
    fields: &[(2, Message(&VALUE))],
};

static KEY_VALUE: MessageShape = MessageShape {
    size: size_of::<KeyValue>(),
    fields: &[(1, Bytes), (2, Message(&VALUE))],
};

static VALUE: MessageShape = MessageShape {
    size: size_of::<AnyValue>(),
    fields: &[
        (1, Bytes),
        (5, Message(&VALUES)),
        (6, Message(&KEY_VALUES)),
        (7, Bytes),
    ],
};

static VALUES: MessageShape = MessageShape {
    size: 0,
    fields: &[(1, Message(&VALUE))],
};

static KEY_VALUES: MessageShape = MessageShape {
    size: 0,
    fields: &[(1, Message(&KEY_VALUE))],
};
