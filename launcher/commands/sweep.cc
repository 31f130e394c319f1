
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/programs.h"
#include "launcher/sweep_file.h"
#include "services/base/cores.h"
#include "services/base/gpus.h"
#include "services/base/python_program.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"

namespace flotilla {
namespace {

namespace fs = std::filesystem;

struct SweepFlags {
  std::optional<std::string> sweep_dir;
  std::optional<int> parallel;
  bool json = false;
};

absl::StatusOr<std::vector<std::string>> MakeCommand(const std::string& named,
                                                     const SweepFlags& flags) {
  std::error_code error;
  std::string file = named;
  std::string folder = flags.sweep_dir.value_or("");
  std::string base;
  if (fs::is_directory(named, error)) {  // one that has begun
    file = named + "/sweep.textproto";
    base = named + "/base.textproto";
    if (!fs::exists(file, error) || !fs::exists(base, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat(named, " is no sweep's folder: it has no ",
                       fs::exists(file, error) ? "base" : "sweep",
                       ".textproto; name a sweep file"));
    }
    if (flags.sweep_dir && *flags.sweep_dir != named) {
      return absl::InvalidArgumentError(
          absl::StrCat("--sweep-dir is ", *flags.sweep_dir, ", and ", named,
                       " is a sweep's folder; name one of the two"));
    }
    folder = named;
  }
  if (folder.empty()) {
    folder = "sweeps/" + fs::path(file).stem().string();
  }
  const std::vector<Gpu> gpus = SurveyGpus().gpus;
  ASSIGN_OR_RETURN(
      Json sweep,
      ReadSweep(file, base,
                {.cores = CoresToFill(), .gpus = static_cast<int>(gpus.size())},
                flags.parallel));
  // Two launchers may number other GPUs alike (CUDA_VISIBLE_DEVICES).
  Json& uuids = sweep["placement"]["uuids"] = Json::array();
  for (const Gpu& gpu : gpus) uuids.push_back(gpu.uuid);
  ASSIGN_OR_RETURN(std::vector<std::string> command,
                   PythonProgram("flotilla_sweep", "a sweep needs"));
  command.push_back(absl::StrCat("--flotilla=", ProgramFolder(), "/flotilla"));
  command.push_back("--sweep-dir=" + folder);
  command.push_back("--sweep=" + FormatJson(sweep));
  if (flags.json) command.push_back("--json");
  return command;
}

}  // namespace

int RunSweep(const Arguments& arguments) {
  SweepFlags flags;
  CommandLine line(
      "flotilla sweep SWEEP [flags]",
      "Searches a configuration: trains as often as the file SWEEP says, in "
      "runs "
      "that differ\nin the fields that it names, and keeps what it knows in a "
      "folder. The same command\nline, or the folder in place of the file, "
      "goes "
      "on after Ctrl-C and kill -9; several\nat a time on one folder, on one "
      "host or many, share its trials. It needs python3 (or\nFLOTILLA_PYTHON). "
      "proto/flotilla/v1/sweep.proto says what may be in the file.\n"
      "Ends with 0: done; 1: no trial has a score, or too many failed; 2: "
      "refused; 75 or\n130: told to stop.");
  line.Text("--sweep-dir", "DIR",
            "the sweep's folder (default sweeps/NAME, of the file's name)",
            &flags.sweep_dir);
  line.Int("--parallel", "N", 1,
           "trials at a time, over placement.parallel of the file",
           &flags.parallel);
  line.Switch("--json", "the result as one object", &flags.json);
  const ParsedLine parsed = ParseLine("sweep", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.positional.empty()) {
    return ReportUsage("sweep",
                       absl::InvalidArgumentError(
                           "name a sweep file, or the folder of a sweep that "
                           "has begun"));
  }
  const auto command = MakeCommand(parsed.positional[0], flags);
  if (!command.ok()) return Report("sweep", command.status());
  return Report("sweep", Become(*command));
}

}  // namespace flotilla
