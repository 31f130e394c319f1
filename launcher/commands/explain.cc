#include <cstdio>

#include "launcher/commands/command.h"
#include "launcher/config_docs.h"
#include "launcher/text_layout.h"

namespace flotilla {

int RunExplain(const Arguments& arguments) {
  CommandLine line("flotilla explain [FIELD]",
                   "Says what a field of the configuration means: its type, "
                   "its default, its "
                   "values,\nand what the configurations that come with "
                   "Flotilla set it to. Of "
                   "a section\n(`flotilla explain ppo`), its fields in short.");
  const ParsedLine parsed = ParseLine("explain", arguments, 1, &line);
  if (parsed.exit_code) return *parsed.exit_code;
  const std::string path =
      parsed.positional.empty() ? "" : parsed.positional[0];
  // A program that was moved away from its configurations still explains.
  const auto text = ExplainField(
      path, ShippedConfigs().value_or(std::vector<ShippedConfig>()),
      TerminalWidth(stdout));
  if (!text.ok()) return Report("explain", text.status());
  std::printf("%s", text->c_str());
  return kExitDone;
}

}  // namespace flotilla
