#ifndef FLOTILLA_SERVICES_BASE_USER_FOLDER_H_
#define FLOTILLA_SERVICES_BASE_USER_FOLDER_H_

#include <string>

namespace flotilla {

// Where what this user adds to Flotilla lies: $XDG_DATA_HOME/flotilla, else
// ~/.local/share/flotilla. It need not be there.
std::string UserFolder();

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_BASE_USER_FOLDER_H_
