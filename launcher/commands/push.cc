#include "launcher/commands/command.h"
#include "launcher/player.h"
#include "launcher/programs.h"
#include "launcher/python_program.h"

namespace flotilla {

int RunPush(const Arguments& arguments) {
  std::string repo, out, onnx;
  bool is_private = false, dry_run = false;
  CommandLine line(
      "flotilla push RUN_OR_CHECKPOINT --repo USER/NAME [flags]",
      "Writes a Hugging Face model repository of a run's latest checkpoint, or "
      "of the one named\n(weights, configuration, scores, a card that says how "
      "to use them), and uploads it with\nhuggingface_hub, as whom that is "
      "logged in (HF_TOKEN). It needs python3 (or FLOTILLA_PYTHON).");
  line.Text("--repo", "USER/NAME", "where to; made if it is not there", &repo);
  line.Text("--out", "DIR",
            "where the repository is written (default: RUN/hub)", &out);
  line.Text("--onnx", "FILE", "put this file of `flotilla export` beside it",
            &onnx);
  line.Switch("--private", "a repository that is made is private", &is_private);
  line.Switch("--dry-run", "write it, and print what would be uploaded",
              &dry_run);
  const ParsedLine parsed = ParseLine("push", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  if (parsed.positional.empty()) {
    return ReportUsage("push", absl::InvalidArgumentError(
                                   "name a run's folder or a checkpoint"));
  }
  const auto checkpoint = FindCheckpoint(parsed.positional[0]);
  if (!checkpoint.ok()) return Report("push", checkpoint.status());
  std::vector<std::string> words = {"push", parsed.positional[0],
                                    "--repo=" + repo, "--out=" + out,
                                    "--onnx=" + onnx};
  if (is_private) words.push_back("--private");
  if (dry_run) words.push_back("--dry-run");
  const auto command = PackageCommand(words);
  if (!command.ok()) return Report("push", command.status());
  return Report("push", Become(*command));
}

}  // namespace flotilla
