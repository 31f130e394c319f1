#ifndef FLOTILLA_SERVICES_COORDINATOR_ROSTER_H_
#define FLOTILLA_SERVICES_COORDINATOR_ROSTER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "flotilla/v1/coordinator.pb.h"
#include "flotilla/v1/journal.pb.h"
#include "services/base/mutex.h"
#include "services/coordinator/change_list.h"

namespace flotilla {

struct RosterOptions {
  std::string epoch;   // random per coordinator start
  std::string run_id;  // "": that of the first member that has one
  int min_learners = 1;
  int max_learners = 1;
  absl::Duration heartbeat = absl::Seconds(1);
  absl::Duration dead_after = absl::Seconds(5);
  absl::Duration last_call = absl::Seconds(30);
};

// What outlives a coordinator, and lets the next one carry on.
struct RosterState {
  v1::RegisterResponse run;  // run_id
  v1::Assignment world;      // the newest generation and its learners by rank
  v1::Command command;       // fence, stop, evaluation, changes, how it closed
  v1::MemberKeys keys;       // of learners, and their restarts
};

// The coordinator's rules, with no network and no clock: who is alive, which
// generation is current, what everyone has to be told. CoordinatorService is
// this class behind gRPC; what the calls mean is in coordinator.proto.
//
//   a learner joins --> GATHERING --(min are there)--> FORMING --> ACTIVE
//                           ^                     (max are there,    |
//                           |                      or last call)     | fence
//                           +----- members join again <--- FENCED <--+
//
// A new generation also forms without a last call when every living learner
// has joined again; the very first one waits, for some may still be starting.
//
// A run that is told to stop while it is FENCED forms one more, of those who
// hold its state and however few they are: only to save.
//
// A call in a member's name comes with a `key`, the SHA-256 (hex) of the secret
// that its caller showed. The first to register an id claims it with its key;
// from then on that key alone speaks for it, in all its incarnations, until it
// has left (or, an env server, died) or is forgotten. An id's role never
// changes.
// Errors of all of them: kPermissionDenied if the key is another one.
//
// Thread-safe. Times are the caller's and never go backwards. No call blocks or
// takes longer than O(members).
class Roster {
 public:
  Roster(const RosterOptions& options, absl::Time now);

  // Takes over from an earlier coordinator. Until its generation's members are
  // back, or twice `dead_after` has passed, nobody is declared dead and no
  // smaller generation forms. Call it first.
  void Restore(const RosterState& state, absl::Time now);

  // Adds a member, or brings one back.
  // Errors: see coordinator.proto; kUnauthenticated without a key.
  absl::StatusOr<v1::RegisterResponse> Register(const v1::Member& member,
                                                const std::string& key,
                                                absl::Time now);

  // Notes that a member is alive and what it does; returns what to tell it.
  // Errors: kAlreadyExists if a newer incarnation has replaced it.
  absl::StatusOr<v1::Command> Beat(const v1::Heartbeat& heartbeat,
                                   const std::string& key, absl::Time now);

  // The member's stream broke: it is suspect until its next heartbeat.
  void SessionBroken(const std::string& id, uint64_t incarnation);

  absl::Status Leave(const v1::LeaveRequest& request, const std::string& key,
                     absl::Time now);

  // Notes that a learner wants into the next generation. JoinResult says
  // whether that has happened; GiveUpJoin takes the wish back.
  // Errors: kNotFound if it is not registered; kFailedPrecondition if its layout
  // is not that of those who hold the run's state; those of JoinResult.
  absl::StatusOr<uint64_t> Join(const v1::JoinGenerationRequest& request,
                                const std::string& key, absl::Time now);

  // Its place, in a generation that may have been fenced since; nullopt while
  // it has to wait.
  // Errors: kUnavailable if it does not wait (any more); kAborted if the run
  // was stopped, and it has nothing to save, or is over; kResourceExhausted if
  // it has failed, or the world is full; kAlreadyExists or kNotFound if it was
  // replaced or died.
  absl::StatusOr<std::optional<v1::Assignment>> JoinResult(
      const v1::JoinGenerationRequest& request) const;

  // Nobody waits for the answer to that Join any more: its wish ends at
  // `lapses`. Who may ask again gets a moment, so that asking in short turns
  // neither restarts a last call nor misses a generation.
  void GiveUpJoin(const std::string& id, uint64_t ticket, absl::Time lapses,
                  absl::Time now);

  // Why no generation has formed: how many are there, how many are needed, who.
  std::string WhyNotFormed() const;

  absl::Status ReportFailure(const v1::ReportFailureRequest& request,
                             const std::string& key, absl::Time now);

  // OK if `generation` is the current one and not fenced.
  // Errors: kAborted if it is fenced; kFailedPrecondition if there is none yet;
  // kUnavailable if it may be one of before this coordinator's restart.
  absl::Status CheckGeneration(uint64_t generation) const;

  // OK if besides `id` is a learner in it. Errors: also kPermissionDenied.
  absl::Status CheckInGeneration(uint64_t generation, const std::string& id,
                                 const std::string& key) const;

  // The newest one, after taking this one in.
  absl::StatusOr<v1::Evaluation> ReportEvaluation(
      const v1::ReportEvaluationRequest& request, const std::string& key);

  absl::Status ReportCollected(const v1::ReportCollectedRequest& request,
                               const std::string& key);

  // Servers that dial stay leased while nothing is heard of them, and to their
  // next incarnation: their learner alone knows when the stream to it is lost.
  // A server that nobody has leased, as far as is known here, is that learner's
  // which says in its heartbeats that it plays there, for as long as it does.
  absl::StatusOr<std::vector<v1::Member>> LeaseEnvServers(
      const v1::LeaseEnvServersRequest& request, const std::string& key);
  absl::Status ReleaseEnvServers(const v1::ReleaseEnvServersRequest& request,
                                 const std::string& key);

  // In the name of a learner, dead ones too: its launcher closes the run of one
  // that cannot go on. Before the first generation, of anyone's: one that was
  // refused a seat can only say so.
  // With status "failed" the generation is fenced, and everybody is told who
  // gave up; one that trains without that learner goes on.
  // Errors: kNotFound if there is no such learner.
  absl::Status CloseRun(const v1::CloseRunRequest& request,
                        const std::string& key);
  // `preempted`: to be resumed. The status that the run is closed with has the
  // last word on that.
  v1::GenerationState Stop(const std::string& reason, bool preempted = false);

  // Asks the ranks to change fields in flight. Returns a ticket for FindChange.
  // Errors: those of ChangeList::Add; kFailedPrecondition if nobody trains.
  absl::StatusOr<uint64_t> Set(const v1::SetRequest& request);

  // What became of it: with an update once the ranks have agreed. nullopt if it
  // is lost.
  std::optional<v1::Change> FindChange(uint64_t ticket) const;

  // Does what time asks for: declares dead whoever is overdue, ends last calls,
  // forgets who has long been gone. Call it every tenth of a second or so.
  void Tick(absl::Time now);

  // What everyone is told now.
  v1::Command Command() const;

  // What `member_id` is told now: besides, where to dial.
  v1::Command CommandFor(const std::string& member_id) const;

  v1::Status GetStatus(absl::Time now) const;

  // What a journal has to hold.
  RosterState State() const;

  // Grows when Command or State may have changed.
  uint64_t command_version() const;
  // Grows with that, and when a learner claims its id.
  uint64_t state_version() const;
  // Grows with that, and when members come, go or change state.
  uint64_t status_version() const;

 private:
  enum class Health { kAlive, kDead, kLeft };

  struct Wish {
    uint64_t ticket = 0;
    absl::Time since;
    absl::Time lapses = absl::InfiniteFuture();
    uint64_t last_committed_update = 0;
    bool has_state = false;
    std::string layout_digest;
  };

  // One registered process.
  struct Seat {
    v1::Member member;
    std::string key;  // who may speak for it
    int rank = -1;    // in the newest generation, fenced or not
    Health health = Health::kAlive;
    absl::Time gone_since;
    bool suspect = false;  // its stream broke
    v1::Heartbeat last;    // without env_worker
    absl::Time last_beat;
    std::map<std::string, v1::EnvServerStatus> env_workers;
    size_t said = 0;            // bytes of member, last and env_workers
    std::optional<Wish> wish;   // learners
    std::string lessee;         // env servers: who plays it
    std::string lease_id;       // of that one's request; "": it gave none
    bool reported = false;      // says that one, and did not lease it here
    std::string given_back_by;  // since whose lease there was none
    std::string dial;           // and where it listens, if this one dials
    bool awaited = false;       // restored, and not heard of since
  };

  // Members: roster.cc.
  absl::Status CheckFits(const v1::Member& member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckClaim(const v1::Member& member,
                          const std::string& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static absl::Status CheckKey(const Seat& seat, const std::string& key);
  absl::Status CheckRank(const v1::Member& member) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Welcome(const v1::Member& member, const std::string& key, Seat* seat)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  Seat* Find(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  const Seat* Find(const std::string& id) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckLearner(const std::string& id, const std::string& key) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Retire(Seat* seat, Health health, const std::string& how)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AwaitEverybody() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Expire() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int64_t LearnerRestarts() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ForgetRestarts(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeEnvWorkers(const v1::Heartbeat& heartbeat, Seat* seat)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeServer(const std::string& before, const std::string& now,
                  const std::string& learner)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Weigh(Seat* seat) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string NameOf(const Seat& seat) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::RegisterResponse Response() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::Command MakeCommand() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static void EndLease(Seat* seat);
  void Changed() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Generations: roster_generations.cc.
  absl::Status CheckCurrent(uint64_t generation) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::optional<v1::Assignment>> ResultOf(
      const v1::JoinGenerationRequest& request) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckLayout(const Seat& joiner, const std::string& digest) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndWishesThatDoNotFit() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  static bool IsThere(const Seat& seat);
  bool GoesOn() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Over() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SetState(v1::GenerationState state) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fence(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeNumber(uint64_t generation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Adopt(uint64_t generation, Seat* seat)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void EndLapsedWishes() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Advance() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AdvanceToStop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AdmitJoiners() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Concluding() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Form() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ChooseSource(const std::vector<Seat*>& seats)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool Recovering() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  int CountWishes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllLearnersWish() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Status: roster_status.cc.
  v1::LearnerStatus StatusOf(const Seat& seat, absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string WaitingFor(absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string SlowestRank(absl::Time now) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddLearners(absl::Time now, v1::Status* status) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AddEnvServers(v1::Status* status) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const RosterOptions options_;
  const absl::Time started_;

  mutable Mutex mu_;
  std::map<std::string, Seat> seats_ ABSL_GUARDED_BY(mu_);  // by member id
  size_t said_ ABSL_GUARDED_BY(mu_) = 0;  // bytes, by all seats
  // Of learners that an earlier coordinator knew and that have no seat yet.
  std::map<std::string, std::string> earlier_keys_ ABSL_GUARDED_BY(mu_);
  std::string run_id_ ABSL_GUARDED_BY(mu_);
  uint64_t next_ticket_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t command_version_ ABSL_GUARDED_BY(mu_) = 1;
  uint64_t claims_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t status_version_ ABSL_GUARDED_BY(mu_) = 1;

  // The newest generation. Its learners, by rank, stay after a fence: survivors
  // keep their order. `assignment_` lacks the rank.
  v1::GenerationState state_ ABSL_GUARDED_BY(mu_) = v1::GATHERING;
  uint64_t generation_ ABSL_GUARDED_BY(mu_) = 0;
  v1::Assignment assignment_ ABSL_GUARDED_BY(mu_);
  uint64_t fenced_ ABSL_GUARDED_BY(mu_) = 0;
  std::string fence_reason_ ABSL_GUARDED_BY(mu_);
  std::optional<absl::Time> forming_since_ ABSL_GUARDED_BY(mu_);
  bool formed_here_ ABSL_GUARDED_BY(mu_) = false;  // not only taken over
  bool adopted_ ABSL_GUARDED_BY(mu_) = false;  // its members are what they say
  bool recovering_ ABSL_GUARDED_BY(mu_) = false;  // at the last Tick
  absl::Time recovering_until_ ABSL_GUARDED_BY(mu_) = absl::InfinitePast();
  absl::Time now_ ABSL_GUARDED_BY(mu_);  // the newest that was given
  absl::Time last_tick_ ABSL_GUARDED_BY(mu_);

  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  std::string stop_reason_ ABSL_GUARDED_BY(mu_);
  bool preempted_ ABSL_GUARDED_BY(mu_) = false;  // will be resumed
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  std::string close_status_ ABSL_GUARDED_BY(mu_);
  std::string failure_ ABSL_GUARDED_BY(mu_);  // why, if it failed
  std::optional<v1::Evaluation> evaluation_ ABSL_GUARDED_BY(mu_);
  ChangeList changes_ ABSL_GUARDED_BY(mu_);

  int64_t collected_update_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<std::string> collected_ ABSL_GUARDED_BY(mu_);  // who has finished it
  int64_t preempt_update_ ABSL_GUARDED_BY(mu_) = 0;

  // Counts that survive whoever made them.
  std::map<std::string, int64_t> learner_restarts_ ABSL_GUARDED_BY(mu_);
  int64_t retired_learner_restarts_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t retired_env_restarts_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t retired_failed_rows_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_COORDINATOR_ROSTER_H_
