#include "launcher/learner_check.h"

#include <google/protobuf/text_format.h>

#include <memory>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "launcher/programs.h"
#include "services/base/atomic_file.h"
#include "services/base/config.h"
#include "services/base/scratch_folder.h"
#include "services/base/status_macros.h"
#include "services/base/subprocess.h"
#include "services/base/text_file.h"

namespace flotilla {

bool BringsCode(const v1::RunConfig& config) {
  return !OwnNetworkField(config.model()).empty() || config.has_custom();
}

absl::Status AskLearner(const v1::RunConfig& config, const v1::EnvSpec& spec,
                        absl::Duration timeout, std::stop_token stop) {
  const ScratchFolder scratch;
  RETURN_IF_ERROR(scratch.status());
  const std::string config_path = scratch.path() + "/config.textproto";
  const std::string spec_path = scratch.path() + "/spec.textproto";
  const std::string verdict = scratch.path() + "/verdict";
  std::string text;
  google::protobuf::TextFormat::PrintToString(spec, &text);
  RETURN_IF_ERROR(WriteFileAtomically(spec_path, text));
  RETURN_IF_ERROR(WriteFileAtomically(config_path, FormatResolved(config)));
  SubprocessOptions program;
  ASSIGN_OR_RETURN(const std::string path, FindProgram("flotilla-learner"));
  program.argv = {path, "--config=" + config_path, "--try=" + spec_path,
                  "--output=" + verdict};
  program.log_path = scratch.path() + "/log";
  ASSIGN_OR_RETURN(const std::unique_ptr<Subprocess> learner,
                   Subprocess::Start(program));
  const absl::Status answered = learner->AwaitFile(verdict, timeout, stop);
  if (!answered.ok()) {  // a library may end the process, too
    return absl::Status(answered.code(),
                        absl::StrCat("flotilla-learner ", answered.message(),
                                     ": ", LastLine(program.log_path)));
  }
  const std::string said(
      absl::StripAsciiWhitespace(WholeFile(verdict).value_or("")));
  return said.empty() ? absl::OkStatus() : absl::InvalidArgumentError(said);
}

}  // namespace flotilla
