#ifndef FLOTILLA_LAUNCHER_TRAIN_FLAGS_H_
#define FLOTILLA_LAUNCHER_TRAIN_FLAGS_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "launcher/topology.h"
#include "services/base/command_line.h"
#include "services/rpc/credentials.h"

namespace flotilla {

// The command line of `flotilla train`, as it was typed.
struct TrainFlags {
  std::optional<std::string> config;
  TopologyFlags topology;
  std::string backend;
  std::optional<std::string> device_ids;
  std::optional<int> max_restarts;
  std::optional<std::string> run_dir;
  std::optional<std::string> resume;
  std::vector<std::string> overrides;
  // What was typed for an override that has a flag of its own: "--seed 5" for
  // "--set seed=5".
  std::vector<std::pair<std::string, std::string>> typed;
  bool dry_run = false;
  RpcCredentials credentials;
  std::string metrics_listen, metrics_token_file;
  std::string progress = "auto";
  std::vector<std::string> track;
  std::optional<std::string> project, group, tags;
};

// What it accepts and says to --help. Fills `flags`, which must outlive it.
CommandLine TrainLine(TrainFlags* flags);

}  // namespace flotilla

#endif  // FLOTILLA_LAUNCHER_TRAIN_FLAGS_H_
