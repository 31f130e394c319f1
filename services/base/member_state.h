#ifndef FLOTILLA_SERVICES_BASE_MEMBER_STATE_H_
#define FLOTILLA_SERVICES_BASE_MEMBER_STATE_H_

namespace flotilla {

// LearnerStatus.state and EnvServerStatus.state. On the wire they are words, so
// that whoever asks with grpcurl reads them as they are.

enum class LearnerState { kAlive, kSuspect, kDead, kJoining, kLeft };
enum class EnvServerState { kPlaying, kIdle, kRestarting, kWaiting, kDead };

constexpr const char* Word(LearnerState state) {
  switch (state) {
    case LearnerState::kAlive:
      return "alive";
    case LearnerState::kSuspect:
      return "suspect";
    case LearnerState::kDead:
      return "dead";
    case LearnerState::kJoining:
      return "joining";
    case LearnerState::kLeft:
      return "left";
  }
  return "";
}

constexpr const char* Word(EnvServerState state) {
  switch (state) {
    case EnvServerState::kPlaying:
      return "playing";
    case EnvServerState::kIdle:
      return "idle";
    case EnvServerState::kRestarting:
      return "restarting";
    case EnvServerState::kWaiting:
      return "waiting for a server";
    case EnvServerState::kDead:
      return "dead";
  }
  return "";
}

// Whether `status`, a LearnerStatus or an EnvServerStatus, says `state`.
template <typename Status, typename State>
bool Is(const Status& status, State state) {
  return status.state() == Word(state);
}

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_MEMBER_STATE_H_
