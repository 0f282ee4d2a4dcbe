/* preft: finds the command in a table, nothing else. */
#include "commands/command.h"

int main(int argc, char **argv)
{
    return command_main(argc, argv);
}
