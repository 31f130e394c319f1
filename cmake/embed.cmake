# Writes the bytes of IN as the numbers of a C++ array into OUT:
#
#   cmake -DIN=file -DOUT=file.inc -P cmake/embed.cmake
file(READ "${IN}" bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE "${OUT}" "${bytes}\n")
