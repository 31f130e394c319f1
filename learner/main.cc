// flotilla-learner: one rank of training, or the player behind
// `flotilla evaluate`. Started by the launcher; see launcher/.

#include "learner/learner_main.h"

int main(int argc, char** argv) {
  return flotilla::LearnerMain(argc, argv, flotilla::ChooseRankDevice);
}
