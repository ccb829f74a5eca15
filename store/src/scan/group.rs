//! The reading of a row group: rows that match are added to their groups.

use super::accumulate::{Accumulate, GroupKey, Groups, check_memory};
use super::plan::GroupPlan;
use super::segment::{SegmentScan, label};
use crate::columns::{Texts, column, values};
use crate::file::FetchedGroup;
use crate::filter::{Column, Condition};
use crate::schema::SampleColumn;
use crate::{Error, Result};
use arrow_array::types::{Int64Type, TimestampMicrosecondType, UInt32Type};
use arrow_array::{Array, RecordBatch, UInt32Array, UInt64Array};
use std::collections::HashMap;

/// Reads a row group.
pub(super) fn read<A: Accumulate>(
    segment: &SegmentScan,
    plan: &GroupPlan,
    fetched: FetchedGroup,
    new: &impl Fn(&SegmentScan) -> A,
    memory: u64,
) -> Result<Groups<A>> {
    let mut index = GroupIndex::new(segment, plan);
    let mut sums: Vec<A> = Vec::new();
    fetched.for_each(|batch| {
        let selected = select(segment, plan, batch)?;
        if selected.as_ref().is_some_and(|rows| !rows.contains(&true)) {
            return Ok(());
        }
        let groups = index.of_rows(segment, plan, batch, selected.as_deref())?;
        while sums.len() < index.keys.len() {
            let sum = new(segment);
            check_memory(sum.memory().saturating_mul(index.keys.len() as u64), memory)?;
            sums.push(sum);
        }
        let rows = Rows::new(segment, batch)?;
        match rows.add(groups.as_deref(), selected.as_deref(), &mut sums) {
            true => Ok(()),
            false => Err(segment.damaged("a sample names a stack that its segment does not have")),
        }
    })?;
    let mut groups = Groups::new(u64::MAX);
    for (key, sum) in index.keys.into_iter().zip(sums) {
        groups.insert(key, sum)?;
    }
    Ok(groups)
}

/// The columns that are added up. A column that is not needed is empty.
struct Rows<'a> {
    count: usize,
    times: &'a [i64],
    weights: &'a [i64],
    stacks: &'a [u32],
}

impl<'a> Rows<'a> {
    fn new(segment: &SegmentScan, batch: &'a RecordBatch) -> Result<Self> {
        let key = segment.file.key();
        let has = |column: SampleColumn| batch.column_by_name(column.name()).is_some();
        Ok(Self {
            count: batch.num_rows(),
            times: match has(SampleColumn::Time) {
                true => values::<TimestampMicrosecondType>(key, batch, "time")?,
                false => &[],
            },
            weights: match has(SampleColumn::Weight) {
                true => values::<Int64Type>(key, batch, "weight")?,
                false => &[],
            },
            stacks: match has(SampleColumn::Stack) {
                true => values::<UInt32Type>(key, batch, "stack")?,
                false => &[],
            },
        })
    }

    /// Adds the rows to the sums of their groups. Returns `false` if an id is out of range.
    fn add<A: Accumulate>(&self, groups: Option<&[u32]>, selected: Option<&[bool]>, sums: &mut [A]) -> bool {
        let mut is_valid = true;
        for row in 0..self.count {
            if selected.is_some_and(|selected| selected.get(row) != Some(&true)) {
                continue;
            }
            let group = groups.and_then(|groups| groups.get(row)).copied().unwrap_or(0);
            let time = self.times.get(row).copied().unwrap_or(0);
            let weight = self.weights.get(row).copied().unwrap_or(0);
            let stack = self.stacks.get(row).copied().unwrap_or(0);
            if let Some(sum) = sums.get_mut(group as usize) {
                is_valid &= sum.add(time, weight, stack);
            }
        }
        is_valid
    }
}

/// Returns which rows match. `None`: all.
fn select(segment: &SegmentScan, plan: &GroupPlan, batch: &RecordBatch) -> Result<Option<Vec<bool>>> {
    let key = segment.file.key();
    let filter = &segment.scan.filter;
    let checks_stacks = segment.stacks.as_ref();
    if plan.matchers.is_empty() && !plan.checks_time && !plan.checks_contexts && checks_stacks.is_none() {
        return Ok(None);
    }
    let mut selected = vec![true; batch.num_rows()];
    if plan.checks_time {
        let times = values::<TimestampMicrosecondType>(key, batch, "time")?;
        let is_within = |time: i64| {
            let time = u64::try_from(time).map(|time| time.saturating_mul(1000));
            time.is_ok_and(|time| (filter.time.start.0..filter.time.end.0).contains(&time))
        };
        for (selected, time) in selected.iter_mut().zip(times) {
            *selected = is_within(*time);
        }
    }
    for matcher in plan
        .matchers
        .iter()
        .filter_map(|index| filter.matchers.get(*index))
    {
        check_column(
            key,
            batch,
            matcher.column.sample_column(),
            &matcher.condition,
            &mut selected,
        )?;
    }
    let by_id = [(&segment.contexts, "context"), (&segment.stacks, "stack")];
    for (matches, name) in by_id {
        let Some(matches) = matches else { continue };
        let ids = values::<UInt32Type>(key, batch, name)?;
        for (selected, id) in selected.iter_mut().zip(ids) {
            let outside = || Error::damaged(key, format!("a sample names a {name} that does not exist"));
            *selected &= *matches.get(*id as usize).ok_or_else(outside)?;
        }
    }
    Ok(Some(selected))
}

/// Checks a condition on a column of texts or numbers.
fn check_column(
    key: &str,
    batch: &RecordBatch,
    name: SampleColumn,
    condition: &Condition,
    selected: &mut [bool],
) -> Result<()> {
    let mut of_rows = TextIds::default();
    let mut holds: Vec<bool> = Vec::new();
    let ids = of_rows.of_column(key, batch, name)?;
    for (selected, id) in selected.iter_mut().zip(ids) {
        while holds.len() < of_rows.texts.len() {
            let text = of_rows.texts.get(holds.len());
            holds.push(text.is_some_and(|text| condition.holds(text)));
        }
        *selected &= holds.get(id as usize) == Some(&true);
    }
    Ok(())
}

/// Ids of texts.
#[derive(Default)]
struct TextIds {
    ids: HashMap<Box<str>, u32>,
    texts: Vec<Box<str>>,
}

impl TextIds {
    fn id(&mut self, text: &str) -> u32 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.texts.len() as u32;
        self.ids.insert(text.into(), id);
        self.texts.push(text.into());
        id
    }

    /// Returns the ids of a column's texts, by row. Numbers are texts.
    fn of_column(&mut self, key: &str, batch: &RecordBatch, name: SampleColumn) -> Result<Vec<u32>> {
        let rows = batch.num_rows();
        let text = name.name();
        match name {
            SampleColumn::Pid | SampleColumn::Tid | SampleColumn::Cpu => {
                let numbers = column::<UInt32Array>(key, batch, text)?;
                let number = |row| (!numbers.is_null(row)).then(|| u64::from(numbers.value(row)));
                Ok(self.of_numbers((0..rows).map(number)))
            }
            SampleColumn::Period => {
                let numbers = column::<UInt64Array>(key, batch, text)?;
                let number = |row| (!numbers.is_null(row)).then(|| numbers.value(row));
                Ok(self.of_numbers((0..rows).map(number)))
            }
            _ => {
                let texts = Texts::new(key, batch, text)?;
                let distinct: Vec<u32> = texts.distinct().map(|text| self.id(text)).collect();
                let none = self.id("");
                let id = |row| match texts.index(row) {
                    Some(index) => distinct.get(index).copied().unwrap_or(none),
                    None => none,
                };
                Ok((0..rows).map(id).collect())
            }
        }
    }

    fn of_numbers(&mut self, numbers: impl Iterator<Item = Option<u64>>) -> Vec<u32> {
        let mut previous: Option<(Option<u64>, u32)> = None;
        let mut known: HashMap<Option<u64>, u32> = HashMap::new();
        let ids = numbers.map(|number| match previous {
            Some((last, id)) if last == number => id,
            _ => {
                let id = *known.entry(number).or_insert_with(|| {
                    let text = number.map_or_else(String::new, |number| number.to_string());
                    self.id(&text)
                });
                previous = Some((number, id));
                id
            }
        });
        ids.collect()
    }
}

/// The groups of a row group: combinations of texts.
struct GroupIndex {
    /// The ids of each column's texts.
    texts: Vec<TextIds>,
    /// The ids of labels by context, for each column that is a label.
    labels: Vec<Option<Vec<u32>>>,
    groups: HashMap<Box<[u32]>, u32>,
    keys: Vec<GroupKey>,
}

impl GroupIndex {
    fn new(segment: &SegmentScan, plan: &GroupPlan) -> Self {
        let mut index = Self {
            texts: Vec::new(),
            labels: Vec::new(),
            groups: HashMap::new(),
            keys: Vec::new(),
        };
        for column in &segment.scan.group_by {
            let mut texts = TextIds::default();
            let labels = match (column, &segment.labels) {
                (Column::Label(key), Some(contexts)) => Some(
                    contexts
                        .iter()
                        .map(|context| texts.id(label(context, key)))
                        .collect(),
                ),
                _ => None,
            };
            index.texts.push(texts);
            index.labels.push(labels);
        }
        if plan.constants.iter().all(Option::is_some) {
            index
                .keys
                .push(plan.constants.iter().flatten().cloned().collect());
        }
        index
    }

    /// Returns the group of each row that matches. `None`: all rows are of the first group.
    fn of_rows(
        &mut self,
        segment: &SegmentScan,
        plan: &GroupPlan,
        batch: &RecordBatch,
        selected: Option<&[bool]>,
    ) -> Result<Option<Vec<u32>>> {
        let key = segment.file.key();
        let mut columns: Vec<Vec<u32>> = Vec::new();
        let by_column = segment.scan.group_by.iter().zip(&plan.constants);
        let state = self.texts.iter_mut().zip(&self.labels);
        for ((column, constant), (texts, labels)) in by_column.zip(state) {
            match (constant, labels) {
                (Some(_), _) => {}
                (None, Some(labels)) => {
                    let contexts = values::<UInt32Type>(key, batch, "context")?;
                    let id = |context: &u32| labels.get(*context as usize).copied();
                    let ids = contexts.iter().map(id).collect::<Option<_>>();
                    let outside = || segment.damaged("a sample names a context that does not exist");
                    columns.push(ids.ok_or_else(outside)?);
                }
                (None, None) => columns.push(texts.of_column(key, batch, column.sample_column())?),
            }
        }
        if columns.is_empty() {
            return Ok(None);
        }
        let mut groups = Vec::with_capacity(batch.num_rows());
        let mut ids: Vec<u32> = Vec::with_capacity(columns.len());
        let mut previous: Option<(Vec<u32>, u32)> = None;
        for row in 0..batch.num_rows() {
            if selected.is_some_and(|selected| selected.get(row) != Some(&true)) {
                groups.push(0);
                continue;
            }
            ids.clear();
            ids.extend(columns.iter().filter_map(|column| column.get(row)));
            let group = match &previous {
                Some((last, group)) if *last == ids => *group,
                _ => {
                    let group = self.group(plan, &ids);
                    previous = Some((ids.clone(), group));
                    group
                }
            };
            groups.push(group);
        }
        Ok(Some(groups))
    }

    /// Returns the group of the ids of the columns that are not constant.
    fn group(&mut self, plan: &GroupPlan, ids: &[u32]) -> u32 {
        if let Some(group) = self.groups.get(ids) {
            return *group;
        }
        let group = self.keys.len() as u32;
        let mut varying = ids.iter();
        let text = |(constant, texts): (&Option<Box<str>>, &TextIds)| match constant {
            Some(text) => text.clone(),
            None => {
                let id = varying.next().copied().unwrap_or(0);
                texts.texts.get(id as usize).cloned().unwrap_or_default()
            }
        };
        self.keys
            .push(plan.constants.iter().zip(&self.texts).map(text).collect());
        self.groups.insert(ids.into(), group);
        group
    }
}
