#include <filesystem>
#include <optional>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "launcher/commands/command.h"
#include "launcher/player.h"
#include "launcher/python_program.h"
#include "services/base/scratch_folder.h"
#include "services/base/shutdown.h"
#include "services/base/subprocess.h"
#include "services/rpc/credential_flags.h"

namespace flotilla {
namespace {

// Runs a program that speaks for itself. Returns the exit code to end with.
int Follow(const std::vector<std::string>& argv) {
  const auto signals = ShutdownSignals::Install();
  SubprocessOptions options;
  options.argv = argv;
  options.guarded = true;
  const auto program = Subprocess::Start(options);
  if (!program.ok()) return Report("export", program.status());
  for (;;) {
    if (signals.ok() && (*signals)->first_signal() != 0) {
      return 128 + (*signals)->first_signal();
    }
    const auto exit = (*program)->Wait(absl::Milliseconds(50));
    if (exit) return exit->code;
  }
}

}  // namespace

int RunExport(const Arguments& arguments) {
  std::optional<std::string> onnx;
  bool sample = false;
  int decisions = 512;
  CommandLine line(
      "flotilla export RUN_OR_CHECKPOINT --onnx FILE [flags]",
      "Writes the policy of a run's latest checkpoint, or of the one named, as "
      "an ONNX file:\nscaling of observations and masks inside, inputs and "
      "outputs by the paths of leaves,\nrecurrent state in and out. It is "
      "checked with onnxruntime against decisions that the\nrun's own policy "
      "makes in its environment, and not written if it differs.\nIt needs "
      "python3 (or FLOTILLA_PYTHON) with torch, onnx and "
      "onnxruntime.");
  line.Text("--onnx", "FILE", "the file to write", &onnx);
  line.Switch("--sample",
              "actions drawn by numbers that are inputs too, \"uniform\" and "
              "\"normal\" (default: the most likely ones)",
              &sample);
  line.Int("--decisions", "N", 1, "to check it with (default: 512)",
           &decisions);
  // For an env server that runs already (env.server).
  RpcCredentials credentials;
  AddCredentialFlags(&credentials, &line);
  const ParsedLine parsed = ParseLine("export", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.positional.empty()) {
    return ReportUsage("export", absl::InvalidArgumentError(
                                     "name a run's folder or a checkpoint"));
  }
  if (!onnx || onnx->empty()) {
    return ReportUsage("export", absl::InvalidArgumentError(
                                     "say where to: --onnx policy.onnx"));
  }
  auto checkpoint = FindCheckpoint(parsed.positional[0]);
  if (!checkpoint.ok()) return Report("export", checkpoint.status());
  // Both programs read the same one, whatever a run that trains saves meanwhile.
  std::error_code error;
  if (const auto one = std::filesystem::canonical(*checkpoint, error); !error) {
    *checkpoint = one.string();
  }
  const ScratchFolder scratch;
  if (!scratch.status().ok()) return Report("export", scratch.status());
  const std::string recorded = scratch.path() + "/decisions.safetensors";
  std::vector<std::string> words = {"export", *checkpoint, "--onnx=" + *onnx,
                                    "--decisions=" + recorded};
  if (sample) words.push_back("--sample");
  const auto command = PackageCommand(words);
  if (!command.ok()) return Report("export", command.status());
  const int code = RunPlayer(
      "export", *checkpoint,
      {absl::StrCat("--decisions=", decisions), "--output=" + recorded},
      credentials, scratch.path());
  return code == kExitDone ? Follow(*command) : code;
}

}  // namespace flotilla
