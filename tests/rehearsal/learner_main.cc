// flotilla-learner-rehearsal: flotilla-learner, but with the device that
// runtime.device "rehearsal" names. For tests, which give it to the launcher as
// flotilla-learner (FLOTILLA_PROGRAM_FOLDER). Strict, and its log ends with what
// was asked of the device.

#include "learner/learner_main.h"

#include "learner/torch.h"
#include "tests/rehearsal/counters.h"
#include "tests/rehearsal/device.h"
#include "tests/rehearsal/strict.h"

namespace flotilla {
namespace {

absl::StatusOr<RankDevice> ChooseDevice(const DeviceRequest& request,
                                        int local_rank) {
  if (request.device != kRehearsalDevice) {
    return ChooseRankDevice(request, local_rank);
  }
  LOG(INFO) << "computes on the rehearsal device";
  rehearsal::Register();
  return RankDevice{.device = rehearsal::Device(), .name = "rehearsal:0"};
}

}  // namespace
}  // namespace flotilla

int main(int argc, char** argv) {
  const flotilla::rehearsal::Strict strict;
  const int exit_code =
      flotilla::LearnerMain(argc, argv, flotilla::ChooseDevice);
  LOG(INFO) << "asked of the rehearsal device:\n"
            << flotilla::rehearsal::Describe(flotilla::rehearsal::ReadCounts());
  return exit_code;
}
