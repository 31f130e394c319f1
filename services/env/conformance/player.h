#ifndef FLOTILLA_SERVICES_ENV_CONFORMANCE_PLAYER_H_
#define FLOTILLA_SERVICES_ENV_CONFORMANCE_PLAYER_H_

#include <grpcpp/channel.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "flotilla/v1/env.pb.h"
#include "services/env/conformance/action_draw.h"
#include "services/env/conformance/findings.h"
#include "services/env/conformance/probe.h"
#include "services/env/conformance/step_check.h"
#include "services/env/group_layout.h"
#include "services/env/ring.h"
#include "services/env/shared_region.h"

namespace flotilla {

// What every look at one server shares.
struct Exam {
  std::shared_ptr<grpc::Channel> channel;
  absl::Duration timeout;  // of every wait
  v1::Hello hello;         // what plays: id, options, rows, groups, seed
  int steps = 64;          // of each stream that is compared
  Findings* findings = nullptr;
  Tally tally = {};
  bool gone = false;  // nobody listens any more

  // After a wait in which nothing came.
  void NoteSilence();
};

// How long what must not come is waited for.
inline constexpr absl::Duration kQuiet = absl::Milliseconds(100);

// Between two tries to get a seat that another stream still has.
inline constexpr absl::Duration kSeatPause = absl::Milliseconds(20);

// One stream, played by the book: what comes is checked, whoever plays.
//
// A function that returns false has said why in the findings, or the stream is
// not worth going on with; drop it then. Not thread-safe.
class Player {
 public:
  // `exam` must outlive this. `action_seed`: what the actions are drawn from.
  Player(Exam* exam, const v1::Hello& hello, uint64_t action_seed = 1);

  // The hello and its welcome. Waits while another stream still has the seat.
  bool Open();

  // The start and the reset batches. `share`: through memory, which has to have
  // been offered (Share).
  bool Start();

  // Passes a region to the server, with rings if they were offered and the welcome
  // has them. Errors: kInvalidArgument if learners speak to no such socket, else the
  // server is elsewhere.
  absl::Status Share();

  // Sends actions to each of `groups`, then receives a step of each.
  bool Step(const std::vector<int>& groups);
  // All groups, `steps` times.
  bool Play(int steps);

  // From now on, slots that are not active are sent what nobody could obey.
  void SendNoise() { noise_ = true; }
  // Whether the row of a group decides now.
  bool IsActive(int group, int row) const;

  // Nothing more comes for a while.
  bool IsQuiet();

  // Half-closes; the stream is to end with OK.
  bool Finish();

  // Random actions for the group's last step.
  v1::ActionBatch Draw(int group);
  // The step of one of the groups that wait for one.
  bool ReceiveStep();
  bool Send(const v1::ActionBatch& actions);

  Probe& probe() { return *probe_; }
  const v1::Hello& hello() const { return hello_; }
  const v1::Welcome& welcome() const { return welcome_; }
  const v1::EnvSpec& spec() const { return welcome_.spec(); }
  const GroupLayout& layout() const { return layout_; }
  const Trace& trace() const { return check_->trace(); }

 private:
  struct Group {
    uint64_t seq = 0;  // of the step expected, or last received
    bool awaits_step = true;
    std::vector<std::string> observation;  // per leaf, [R, ...]
    std::string active;                    // [R], or all are
  };

  bool CheckWelcome(Probe::Event event);
  // Waits for a step of the ring, which is then in `ring_step_`, or else for what
  // the stream has.
  Probe::Event ReceiveRing();
  bool CheckTurn(const v1::StepBatch& step);
  // The observations, wherever they lie. False: not where they should.
  bool TakeObservations(const v1::StepBatch& step, Group* group);
  bool SizesFit(const v1::StepBatch& step);
  std::string Awaited() const;

  Exam& exam_;
  Findings& findings_;
  const v1::Hello hello_;
  const uint64_t action_seed_;
  std::unique_ptr<Probe> probe_;
  v1::Welcome welcome_;
  GroupLayout layout_;
  std::vector<Group> groups_;
  std::optional<ActionDraw> draw_;
  std::optional<StepCheck> check_;
  std::optional<SharedRegion> region_;
  RingLayout ring_layout_;
  std::unique_ptr<Ring> ring_;  // null: messages
  v1::StepBatch ring_step_;
  bool in_ring_ = false;  // the step that came is there
  // The probe's reply is the next one that an entry announces: it was received
  // while another group's step was awaited, or before the entry was seen.
  bool message_ahead_ = false;
  bool noise_ = false;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_ENV_CONFORMANCE_PLAYER_H_
