#include "launcher/train_flags.h"

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/trackers.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

// --resume takes the next argument only if it is "latest" or a folder; else
// that is the configuration.
bool IsResumeValue(const std::string& argument) {
  std::error_code error;
  return argument == "latest" ||
         std::filesystem::is_directory(argument, error) ||
         (absl::StrContains(argument, "/") &&
          !absl::EndsWith(argument, ".textproto") && argument[0] != '-');
}

}  // namespace

CommandLine TrainLine(TrainFlags* flags) {
  CommandLine line(
      "flotilla train CONFIG [flags]",
      "Trains as CONFIG says: a file, or a name that `flotilla configs` "
      "lists.\n"
      "With --resume, CONFIG may be left out: the run's own is used.\n"
      "Ends with 0: solved, completed or stopped; 1: failed; 2: refused;\n"
      "75: saved for SIGTERM, SIGUSR1, SIGUSR2 or SIGHUP; 130: for Ctrl-C.");
  TopologyFlags* topology = &flags->topology;
  line.Text("--nproc-per-node", "N|auto|gpu",
            "learners on this node (auto: one a GPU, else 1)",
            &topology->nproc_per_node);
  line.Text("--nnodes", "N|MIN:MAX", "nodes; a range makes the job elastic",
            &topology->nnodes);
  line.Int("--node-rank", "R", 0, "which node this is", &topology->node_rank);
  line.Text("--coordinator", "HOST:PORT",
            "where the nodes meet; node 0 starts it if nothing listens",
            &topology->coordinator);
  line.Text("--master-addr", "HOST", "as in torchrun: --coordinator's host",
            &topology->master_addr);
  line.Int("--master-port", "PORT", 0, "as in torchrun: --coordinator's port",
           &topology->master_port);
  line.Text("--rdzv-endpoint", "HOST:PORT", "as in torchrun: --coordinator",
            &topology->rdzv_endpoint);
  for (const char* name : {"--rdzv-backend", "--rdzv-id"}) {
    line.Each(name, "TEXT", "as in torchrun; not needed",
              [](const std::string&) {});
  }
  line.Switch("--standalone", "one node, a coordinator of its own",
              &topology->standalone);
  line.Choice("--backend", {"auto", "nccl", "gloo"},
              "gradient collectives (auto: NCCL if every rank has a GPU)",
              &flags->backend);
  line.Text("--device-ids", "0,0,1",
            "the GPU of each learner on this node; may repeat with Gloo",
            &flags->device_ids);
  line.Int("--max-restarts", "N", 0,
           "replacements of one learner in 10 minutes (default 3)",
           &flags->max_restarts);
  line.Text("--run-dir", "DIR", "the run's folder (default runs/CONFIG-TIME)",
            &flags->run_dir);
  line.OptionalText("--resume", "latest|PATH",
                    "go on from the run's newest checkpoint, or from PATH; "
                    "with CONFIG, a folder without a run begins a new one",
                    "latest", IsResumeValue, &flags->resume);
  line.List("--set", "PATH=VALUE",
            "override a field: --set optimizer.learning_rate=1e-3; of several "
            "for one, the last one wins",
            &flags->overrides);
  const auto shortcut = [&](const std::string& name, const std::string& value,
                            const std::string& path) {
    line.Each(name, value, "short for --set " + path + "=" + value,
              [=](const std::string& text) {
                flags->overrides.push_back(absl::StrCat(path, "=", text));
                flags->typed.push_back(
                    {absl::StrCat("--set ", flags->overrides.back()),
                     absl::StrCat(name, " ", text)});
              });
  };
  shortcut("--seed", "N", "seed");
  shortcut("--steps", "N", "total_env_steps");
  shortcut("--env", "ID", "env.id");
  shortcut("--lr", "RATE", "optimizer.learning_rate");
  line.Switch("--dry-run",
              "check, ask the environment, print configuration, topology and "
              "sizes; train nothing",
              &flags->dry_run);
  AddCredentialFlags(&flags->credentials, &line);
  line.Text("--metrics-listen", "HOST:PORT",
            "have the coordinator serve /metrics there, for Prometheus; https "
            "where TLS is given",
            &flags->metrics_listen);
  line.Text("--metrics-token-file", "FILE",
            "a token that Prometheus has to show (credentials_file)",
            &flags->metrics_token_file);
  line.Choice("--progress", {"auto", "plain", "none"},
              "live progress (auto: a bar on a terminal, else lines)",
              &flags->progress);
  line.List("--track", kTrackers,
            "send the metrics there too, by a process beside the run; may be "
            "given for several (neptune: its client's offline mode; the hosted "
            "service closed on 2026-03-05)",
            &flags->track);
  line.Text("--project", "NAME", "the tracker's project (default flotilla)",
            &flags->project);
  line.Text("--group", "NAME", "the tracker's group of runs", &flags->group);
  line.Text("--tags", "A,B", "the tracker's tags", &flags->tags);
  line.Alias("--nproc", "--nproc-per-node");
  // CleanRL's.
  line.Alias("--total-timesteps", "--steps");
  line.Alias("--learning-rate", "--lr");
  line.Alias("--env-id", "--env");
  return line;
}

}  // namespace flotilla
