//! The messages of [`NamesExec`].

use super::names_exec::NamesExec;
use super::wire::NameContext;
use crate::functions::Names;
use crate::names::NameSource;
use crate::objects::CountingStore;
use datafusion::common::{Result, not_impl_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};
use std::sync::Arc;

/// The messages on the side that sends them.
#[derive(Debug)]
pub(super) struct CoordinatorCodec;

/// The messages on the side of workers, where a message sets the source of names.
#[derive(Debug)]
pub(super) struct WorkerCodec {
    /// The object store of the worker.
    pub(super) store: Arc<CountingStore>,
    /// The source of the functions of this part.
    pub(super) names: Names,
    /// The memory limit of the worker.
    pub(super) memory: u64,
}

fn encode(node: &dyn ExecutionPlan, bytes: &mut Vec<u8>) -> Result<()> {
    match node.downcast_ref::<NamesExec>() {
        Some(names) => {
            bytes.extend(names.context().encode()?);
            Ok(())
        }
        None => not_impl_err!("{} is not sent to workers", node.name()),
    }
}

impl PhysicalExtensionCodec for CoordinatorCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(input) = inputs.first() else {
            return not_impl_err!("a NamesExec needs an input");
        };
        let context = NameContext::decode(bytes)?;
        Ok(Arc::new(NamesExec::new(Arc::clone(input), Arc::new(context))))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        encode(node.as_ref(), bytes)
    }
}

impl PhysicalExtensionCodec for WorkerCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        task: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let node = CoordinatorCodec.try_decode(bytes, inputs, task, converter)?;
        if let Some(names) = node.downcast_ref::<NamesExec>() {
            let context = names.context();
            self.names.set(NameSource::new(
                Arc::clone(&self.store),
                Arc::clone(task.memory_pool()),
                self.memory,
                context.hours(),
                context.symbols(),
            )?);
        }
        Ok(node)
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        encode(node.as_ref(), bytes)
    }
}
