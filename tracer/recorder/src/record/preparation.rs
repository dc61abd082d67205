//! Everything that can fail before a program is touched, in its order.

use crate::args::{RecordConfig, RecordTarget};
use crate::files::NewTrace;
use crate::files::name::expand;
use crate::files::segments::SegmentFolder;
use crate::invoker::Invoker;
use crate::launch::{LaunchPlan, Signals};
use crate::privileges;
use crate::record::call_sources::CallSources;
use crate::record::inprocess::InProcessSource;
use crate::record::kernel::{LoadedProbes, permission};
use crate::record::mode::ModeDecision;
use crate::record::output::{OpenTrace, RecordOutput, RecordSink, TraceOutput};
use crate::record::segments::{Now, SegmentedTrace};
use crate::record::sources::RecordingSources;
use crate::record::supervision::CommandSupervisor;
use crate::record::trace::RecordingTrace;
use crate::record::{Recording, header, mode};
use anyhow::Context as _;
use gctrace_event::{RecordingMode, TraceHeader};
use gctrace_settings::APPLY_VARIABLE;

/// A recording that is possible, with its sources ready; its trace does not exist yet.
pub struct RecordingPlan<'a> {
    config: &'a RecordConfig,
    invoker: Invoker,
    launch: Option<LaunchPlan>,
    decision: ModeDecision,
    probes: Option<LoadedProbes>,
    inprocess: Option<InProcessSource>,
    header: TraceHeader,
}

impl<'a> RecordingPlan<'a> {
    /// Decides on the sources, loads the BPF programs and opens the library's socket.
    pub fn new(config: &'a RecordConfig) -> anyhow::Result<Self> {
        let invoker = Invoker::detect();
        let mut launch = match &config.target {
            RecordTarget::Command(command) => {
                Some(LaunchPlan::new(command, &invoker, config.sources.as_root))
            }
            RecordTarget::Process(_) | RecordTarget::Everything => None,
        };
        let decision = mode::decide(config, launch.as_ref())?;
        if let RecordTarget::Process(pid) = &config.target {
            permission::attachable(*pid)?;
        }
        let by_probes = decision.uses_probes();
        if let (true, Some(why)) = (by_probes, privileges::too_few_files()) {
            anyhow::bail!("cannot record from the kernel: {why}");
        }
        let alone = decision.collections == RecordingMode::Ebpf;
        let probes = if by_probes { Some(LoadedProbes::open(config, alone)?) } else { None };
        let mut inprocess = None;
        if let (Some(injection), Some(launch)) = (&decision.injection, &mut launch) {
            let source =
                InProcessSource::start(&invoker, config.sources.as_root, !by_probes, injection)?;
            let library = injection.library.display();
            launch
                .inject(injection, &source.rendezvous())
                .with_context(|| format!("cannot inject {library} into the command"))?;
            source.hand_over()?;
            inprocess = Some(source);
            if let Some(setting) = &config.apply {
                launch.set_variable(APPLY_VARIABLE, setting.to_string().into());
            }
        } else if let Some(launch) = &launch {
            anyhow::ensure!(
                config.apply.is_none(),
                "the settings cannot be applied: no library is injected (gctrace doctor)"
            );
            if matches!(launch.variable(APPLY_VARIABLE), Some(setting) if !setting.is_empty()) {
                tracing::warn!(
                    "{APPLY_VARIABLE} is not applied: with --mode {} no library is in the program; \
                     --mode both and inject apply it",
                    decision.collections.as_ref()
                );
            }
        }
        let mut header = header::header(config, decision.collections.clone(), &invoker, |name| {
            launch.as_ref()?.variable(name)
        });
        if let Some(probes) = &probes {
            probes.describe(config, &mut header);
        }
        Ok(Self { config, invoker, launch, decision, probes, inprocess, header })
    }

    /// The first line of the trace.
    pub fn header(&self) -> &TraceHeader {
        &self.header
    }

    /// Creates the trace, attaches the event sources and starts the guardian. `live` receives every
    /// record while the recording runs; it must return within microseconds.
    pub fn prepare(
        self,
        signals: Signals,
        live: Option<Box<dyn RecordSink>>,
    ) -> anyhow::Result<Recording<'a>> {
        let Self { config, mut launch, decision, inprocess, .. } = self;
        let is_shown = live.is_some();
        let option = if is_shown { "--record" } else { "-o" };
        let words = launch.as_ref().map(LaunchPlan::words).unwrap_or_default();
        let created = |pattern| {
            let path = expand(pattern, header::name_facts(&self.header), option)?;
            NewTrace::create(&path, &self.invoker, &words, option)
        };
        let mut moved = None;
        let segments = match (&config.keep, config.output.as_deref()) {
            (Some(keep), Some(pattern)) => {
                let path = expand(pattern, header::name_facts(&self.header), option)?;
                let (folder, earlier) = SegmentFolder::open(&path, &self.invoker, option)?;
                moved = earlier;
                Some(SegmentedTrace::start(folder, keep, &self.header, Now::read())?)
            }
            _ => None,
        };
        let output = if segments.is_none() { config.output.as_deref() } else { None };
        let mut new_trace = output.map(created).transpose()?;
        if let (Some(true), Some(launch)) = (new_trace.as_ref().map(NewTrace::streams), &mut launch)
        {
            launch.redirect_stdout().context("the command's standard output")?;
        }
        let opened = |trace| {
            OpenTrace::start(trace, &self.header).map(|trace| TraceOutput::File(trace.into()))
        };
        let file = new_trace.as_ref().map(opened).transpose()?;
        let output = file.or(segments.map(|segments| TraceOutput::Segments(Box::new(segments))));
        let output = RecordOutput::new(output, &self.header, &self.invoker, live);
        if let Some(trace) = &mut new_trace {
            trace.appear(option)?;
        }
        // Calls are left to the library only if probes can take over.
        let library = match (&self.probes, &inprocess, &launch) {
            (Some(_), Some(_), Some(launch)) => launch.cuda_injection(),
            _ => None,
        };
        let calls = CallSources::new(library.map(ToOwned::to_owned));
        let both = decision.collections == RecordingMode::Both;
        let mut trace = RecordingTrace::new(output, both, calls);
        if let Some(opening) = &decision.opening {
            tracing::warn!("{opening}");
        }
        for note in &decision.notes {
            trace.note(note);
        }
        if let Some(moved) = moved {
            tracing::warn!("the recording before is now in {}", moved.display());
        }
        let kernel = match self.probes {
            Some(probes) => Some(probes.into_source(config, &self.invoker, &mut trace)?),
            None => None,
        };
        for note in launch.iter().flat_map(LaunchPlan::notes) {
            tracing::warn!("{note}");
        }
        Ok(Recording {
            config,
            trace,
            new_trace,
            lock: None,
            sources: RecordingSources { kernel, inprocess },
            launch,
            attached: None,
            deadline: None,
            program_time: None,
            is_shown,
            write_error_reported: false,
            command: CommandSupervisor::new(signals).keeping(config.keep.is_some()),
        })
    }
}
