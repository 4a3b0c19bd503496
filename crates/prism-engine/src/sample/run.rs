//! Running a tape: blocks of samples over threads.

use std::sync::atomic::{AtomicU64, Ordering};

use prism_stats::counter::Stream;

use super::error::SampleError;
use super::kernels::{Ctx, Kernels, OutputRow, for_isa};
use super::simd::Isa;
use super::tape::Tape;

/// How a tape is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunOptions {
    /// Seed of all draws.
    pub seed: u64,
    /// Number of the first sample. Samples are numbered for good: a run of samples 0..n and one of
    /// n..m are together the run 0..m, bit by bit.
    pub first_sample: u64,
    /// Number of samples.
    pub samples: usize,
    /// Whether samples come in pairs that mirror each other's uniforms: within every 32 samples,
    /// number i < 16 and number i + 16. Statistics should then treat pairs as units.
    pub antithetic: bool,
    /// Threads; 0 for as many as the machine runs at once.
    pub threads: usize,
    /// Instruction set; `None` for the fastest. Results do not depend on it.
    pub isa: Option<Isa>,
}

impl Default for RunOptions {
    /// Seed 0, 10,000 plain samples from number 0, all threads, fastest instruction set.
    fn default() -> Self {
        Self { seed: 0, first_sample: 0, samples: 10_000, antithetic: false, threads: 0, isa: None }
    }
}

/// One output of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    name: String,
    rows: usize,
    samples: usize,
    data: Vec<f32>,
}

impl Output {
    /// Its name in the program.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Number of rows: 1 for a shared value, one per replica otherwise.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The samples of one row; empty beyond the last row.
    pub fn row(&self, row: usize) -> &[f32] {
        self.data.get(row * self.samples..(row + 1) * self.samples).unwrap_or_default()
    }

    /// All rows, `[row][sample]`.
    pub fn data(&self) -> &[f32] {
        &self.data
    }

    /// All rows, by value.
    pub fn into_data(self) -> Vec<f32> {
        self.data
    }
}

/// What a run computed, in the order of the program's outputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    outputs: Vec<Output>,
    isa: Option<Isa>,
}

impl Samples {
    /// All outputs.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// All outputs, by value.
    pub fn into_outputs(self) -> Vec<Output> {
        self.outputs
    }

    /// The output of a name.
    pub fn get(&self, name: &str) -> Option<&Output> {
        self.outputs.iter().find(|o| o.name == name)
    }

    /// The instruction set that computed them; `None` before a run.
    pub fn isa(&self) -> Option<Isa> {
        self.isa
    }

    /// Shapes the outputs for a tape, reusing memory where it fits.
    fn reshape(&mut self, tape: &Tape, samples: usize) {
        self.outputs.truncate(tape.outputs.len());
        for (i, spec) in tape.outputs.iter().enumerate() {
            if self.outputs.len() == i {
                let (name, data) = (String::new(), Vec::new());
                self.outputs.push(Output { name, rows: 0, samples: 0, data });
            }
            let output = &mut self.outputs[i];
            if output.name != spec.name {
                output.name.clone_from(&spec.name);
            }
            output.rows = if spec.per_replica { tape.replicas as usize } else { 1 };
            output.samples = samples;
            output.data.resize(output.rows * samples, 0.0);
        }
    }
}

/// Memory that runs reuse.
#[derive(Debug, Default)]
pub struct Workspace {
    streams: Vec<Stream>,
    rows: Vec<OutputRow>,
    banks: Vec<Vec<Line>>,
}

impl Workspace {
    /// An empty workspace; it grows to what the first run needs.
    pub fn new() -> Self {
        Self::default()
    }
}

/// A cache line of samples.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "read and written by address")] [f32; 16]);

impl Tape {
    /// The instruction set that a run without preference uses here.
    pub fn isa(&self) -> Isa {
        Isa::detect()
    }

    /// Runs the tape.
    ///
    /// # Errors
    /// [`SampleError::IsaUnavailable`], [`SampleError::TooManySamples`].
    pub fn run(&self, options: &RunOptions) -> Result<Samples, SampleError> {
        let mut samples = Samples::default();
        self.run_into(options, &mut Workspace::new(), &mut samples)?;
        Ok(samples)
    }

    /// Runs the tape into existing memory. On one thread nothing is allocated once workspace and
    /// samples have the size needed.
    ///
    /// # Errors
    /// As [`Tape::run`].
    pub fn run_into(
        &self,
        options: &RunOptions,
        workspace: &mut Workspace,
        samples: &mut Samples,
    ) -> Result<(), SampleError> {
        let isa = options.isa.unwrap_or_else(Isa::detect);
        if !isa.is_available() {
            return Err(SampleError::IsaUnavailable { isa });
        }
        let kernels = for_isa(isa, options.antithetic);
        // SAFETY: the processor has the instruction set.
        unsafe { self.run_with(&kernels, options, workspace, samples)? };
        samples.isa = Some(isa);
        Ok(())
    }

    /// # Safety
    /// The processor must be able to run the kernels.
    pub(crate) unsafe fn run_with(
        &self,
        kernels: &Kernels,
        options: &RunOptions,
        workspace: &mut Workspace,
        samples: &mut Samples,
    ) -> Result<(), SampleError> {
        let (first, count) = (options.first_sample, options.samples);
        let too_many = SampleError::TooManySamples { first, count };
        let width = self.width as u64;
        let end = first.checked_add(count as u64).filter(|e| e.checked_add(width).is_some());
        let rows =
            count.checked_mul(4 * self.replicas as usize).filter(|b| *b < isize::MAX as usize);
        let (Some(end), Some(_)) = (end, rows) else { return Err(too_many) };
        samples.reshape(self, count);
        if count == 0 {
            return Ok(());
        }
        let (begin_block, end_block) = (first / width, end.div_ceil(width));
        let threads = thread_count(options.threads, end_block - begin_block);
        workspace.prepare(self, options.seed, threads, samples);
        let job = Job {
            tape: self,
            kernels,
            streams: &workspace.streams,
            rows: &workspace.rows,
            antithetic: options.antithetic,
            first,
            end,
            next: AtomicU64::new(begin_block),
            end_block,
        };
        let mut banks = workspace.banks[..threads].iter_mut();
        let Some(own) = banks.next() else { return Ok(()) };
        if threads == 1 {
            // SAFETY: passed on; the banks and rows were shaped for this tape.
            unsafe { job.work(own) };
        } else {
            std::thread::scope(|scope| {
                for bank in banks {
                    // SAFETY: as above; threads take different blocks, so they write different samples.
                    scope.spawn(|| unsafe { job.work(bank) });
                }
                // SAFETY: as above.
                unsafe { job.work(own) };
            });
        }
        workspace.rows.clear();
        Ok(())
    }

    /// Floats of all banks of slots.
    fn arena(&self) -> [usize; 3] {
        let [shared, scratch, kept] = self.slots.map(|s| s as usize * self.width);
        [shared, scratch, kept * self.replicas as usize]
    }
}

fn thread_count(asked: usize, blocks: u64) -> usize {
    let all = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if asked == 0 { all() } else { asked };
    threads.min(usize::try_from(blocks).unwrap_or(usize::MAX)).max(1)
}

impl Workspace {
    fn prepare(&mut self, tape: &Tape, seed: u64, threads: usize, samples: &mut Samples) {
        self.streams.clear();
        self.streams.extend(tape.draws.iter().map(|&key| Stream::new(seed, key)));
        self.rows.clear();
        self.rows.extend(
            samples
                .outputs
                .iter_mut()
                .map(|o| OutputRow { data: o.data.as_mut_ptr(), stride: o.samples }),
        );
        let lines = tape.arena().iter().sum::<usize>().div_ceil(16);
        if self.banks.len() < threads {
            self.banks.resize_with(threads, Vec::new);
        }
        for bank in &mut self.banks[..threads] {
            if bank.len() < lines {
                bank.resize(lines, Line([0.0; 16]));
            }
        }
    }
}

/// One run, as its threads see it.
struct Job<'a> {
    tape: &'a Tape,
    kernels: &'a Kernels,
    streams: &'a [Stream],
    rows: &'a [OutputRow],
    antithetic: bool,
    first: u64,
    end: u64,
    next: AtomicU64,
    end_block: u64,
}

impl Job<'_> {
    /// Computes blocks until none is left.
    ///
    /// # Safety
    /// The processor must be able to run the kernels, `bank` must have the size of the tape's arena,
    /// and the rows must be those of outputs with the run's number of samples.
    unsafe fn work(&self, bank: &mut [Line]) {
        let tape = self.tape;
        let [shared, scratch, _] = tape.arena();
        let base = bank.as_mut_ptr().cast::<f32>();
        // SAFETY: the bank holds all three areas, one after the other.
        let (scratch_base, kept_base) = unsafe { (base.add(shared), base.add(shared + scratch)) };
        let kept = tape.slots[2] as usize * tape.width;
        let mut ctx = Ctx {
            bases: [base, scratch_base, kept_base, base],
            width: tape.width,
            replica: 0,
            counter: 0,
            epoch: 0,
            streams: self.streams,
            scalars: &tape.scalars,
            gathers: &tape.gathers,
            offsets: &tape.offsets,
            pools: &tape.pools,
            laws: &tape.laws,
            maps: &tape.maps,
            tables: &tape.tables,
            outputs: self.rows,
            wanted: 0..0,
            at: 0,
        };
        loop {
            let block = self.next.fetch_add(1, Ordering::Relaxed);
            if block >= self.end_block {
                return;
            }
            self.enter(&mut ctx, block);
            for (p, part) in tape.parts.iter().enumerate() {
                let replicas = if p % 2 == 1 { tape.replicas } else { 1 };
                for replica in 0..replicas {
                    ctx.replica = replica;
                    // SAFETY: replica's kept slots lie within the bank.
                    ctx.bases[2] = unsafe { kept_base.add(replica as usize * kept) };
                    for ins in &tape.ins[part.clone()] {
                        // SAFETY: operands are slots of this tape; the caller vouches for the rest.
                        unsafe { self.kernels[ins.op as usize](&ctx, ins) };
                    }
                }
            }
        }
    }

    /// Sets what differs between blocks.
    fn enter(&self, ctx: &mut Ctx<'_>, block: u64) {
        let width = ctx.width as u64;
        let start = block * width;
        let counter = if self.antithetic { start / 2 } else { start };
        ctx.counter = counter as u32;
        ctx.epoch = (counter >> 32) as u32;
        let (from, to) = (start.max(self.first), (start + width).min(self.end));
        ctx.wanted = (from - start) as usize..(to - start) as usize;
        ctx.at = (from - self.first) as usize;
    }
}
