"""Numbers of system calls, `name:x86_64:aarch64`, from Linux's own tables (asm/unistd_64.h, asm-generic/unistd.h).

What stands in neither list does not exist inside (ENOSYS), so that a libc that tries a new call falls back to an old
one.
"""

from __future__ import annotations

# What an interpreter, its threads and its timers need. Some are limited further by their arguments: see seccomp.py.
ALLOWED = """
read:0:63 write:1:64 close:3:57 fstat:5:80 lseek:8:62 mmap:9:222 mprotect:10:226 munmap:11:215 brk:12:214
rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 ioctl:16:29 pread64:17:67 pwrite64:18:68 readv:19:65
writev:20:66 access:21:- pipe:22:- pipe2:293:59 select:23:- pselect6:270:72 sched_yield:24:124 mremap:25:216
msync:26:227 mincore:27:232 madvise:28:233 dup:32:23 dup2:33:- dup3:292:24 pause:34:- nanosleep:35:101
getitimer:36:102 alarm:37:- setitimer:38:103 getpid:39:172 gettid:186:178 getppid:110:173 sendto:44:206
recvfrom:45:207 sendmsg:46:211 recvmsg:47:212 shutdown:48:210 getsockname:51:204 getpeername:52:205 socketpair:53:199
getsockopt:55:209 setsockopt:54:208 clone:56:220 exit:60:93 exit_group:231:94 wait4:61:260 waitid:247:95 kill:62:129
tkill:200:130 tgkill:234:131 uname:63:160 fcntl:72:25 flock:73:32 fsync:74:82 fdatasync:75:83 ftruncate:77:46
getdents64:217:61 getcwd:79:17 chdir:80:49 fchdir:81:50 rename:82:- renameat:264:38 renameat2:316:276 mkdir:83:-
mkdirat:258:34 rmdir:84:- unlink:87:- unlinkat:263:35 link:86:- linkat:265:37 symlink:88:- symlinkat:266:36
readlink:89:- readlinkat:267:78 open:2:- openat:257:56 stat:4:- lstat:6:- newfstatat:262:79 statx:332:291 umask:95:166
gettimeofday:96:169 getrlimit:97:163 setrlimit:160:164 prlimit64:302:261 getrusage:98:165 sysinfo:99:179 times:100:153
getuid:102:174 geteuid:107:175 getgid:104:176 getegid:108:177 getresuid:118:148 getresgid:120:150 getgroups:115:158
getpgid:121:155 getpgrp:111:- getsid:124:156 getpriority:140:141 setsid:112:157 setpgid:109:154 sigaltstack:131:132
rt_sigpending:127:136 rt_sigtimedwait:128:137 rt_sigsuspend:130:133 prctl:157:167 arch_prctl:158:- statfs:137:43
fstatfs:138:44 sched_getaffinity:204:123 sched_getparam:143:121 sched_getscheduler:145:120
sched_get_priority_max:146:125 sched_get_priority_min:147:126 futex:202:98 set_robust_list:273:99
get_robust_list:274:100 set_tid_address:218:96 restart_syscall:219:128 rseq:334:293 membarrier:324:283 getcpu:309:168
time:201:- clock_gettime:228:113 clock_getres:229:114 clock_nanosleep:230:115 epoll_create:213:- epoll_create1:291:20
epoll_ctl:233:21 epoll_wait:232:- epoll_pwait:281:22 epoll_pwait2:441:441 poll:7:- ppoll:271:73 eventfd:284:-
eventfd2:290:19 timerfd_create:283:85 timerfd_settime:286:86 timerfd_gettime:287:87 signalfd:282:- signalfd4:289:74
getrandom:318:278 faccessat:269:48 faccessat2:439:439 fadvise64:221:223 fallocate:285:47 sendfile:40:71 splice:275:76
tee:276:77 copy_file_range:326:285 close_range:436:436 preadv:295:69 pwritev:296:70 preadv2:327:286 pwritev2:328:287
getdents:78:- creat:85:- capget:125:90 pidfd_open:434:434 execve:59:221 vfork:58:- fork:57:- timer_create:222:107
timer_settime:223:110 timer_gettime:224:108 timer_delete:226:111 timer_getoverrun:225:109
"""

# Refused with EPERM: networks, other processes, namespaces, mounts, keys, rings, shared memory that outlives a process,
# modes, owners and times of files (which Landlock does not guard), priorities, identities.
DENIED = """
socket:41:198 connect:42:203 bind:49:200 listen:50:201 accept:43:202 accept4:288:242 sendmmsg:307:269 recvmmsg:299:243
ptrace:101:117 process_vm_readv:310:270 process_vm_writev:311:271 kcmp:312:272 pidfd_send_signal:424:424
pidfd_getfd:438:438 rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 execveat:322:281 unshare:272:97 setns:308:268
mount:165:40 umount2:166:39 pivot_root:155:41 chroot:161:51 fsopen:430:430 fsmount:432:432 fsconfig:431:431
fspick:433:433 move_mount:429:429 open_tree:428:428 mount_setattr:442:442 swapon:167:224 swapoff:168:225
reboot:169:142 init_module:175:105 finit_module:313:273 delete_module:176:106 kexec_load:246:104
kexec_file_load:320:294 acct:163:89 quotactl:179:60 quotactl_fd:443:443 name_to_handle_at:303:264
open_by_handle_at:304:265 syslog:103:116 settimeofday:164:170 clock_settime:227:112 clock_adjtime:305:266
adjtimex:159:171 sethostname:170:161 setdomainname:171:162 personality:135:92 iopl:172:- ioperm:173:- bpf:321:280
perf_event_open:298:241 userfaultfd:323:282 keyctl:250:219 add_key:248:217 request_key:249:218 io_uring_setup:425:425
io_uring_enter:426:426 io_uring_register:427:427 io_setup:206:0 io_submit:209:2 io_destroy:207:1 memfd_create:319:279
memfd_secret:447:- shmget:29:194 shmat:30:196 shmctl:31:195 msgget:68:186 msgsnd:69:189 msgrcv:70:188 msgctl:71:187
semget:64:190 semop:65:193 semctl:66:191 semtimedop:220:192 mq_open:240:180 mq_unlink:241:181 fanotify_init:300:262
fanotify_mark:301:263 inotify_init:253:- inotify_init1:294:26 chmod:90:- fchmod:91:52 fchmodat:268:53
fchmodat2:452:452 chown:92:- fchown:93:55 lchown:94:- fchownat:260:54 utime:132:- utimes:235:- futimesat:261:-
utimensat:280:88 setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 removexattr:197:14 lremovexattr:198:15
fremovexattr:199:16 truncate:76:45 mknod:133:- mknodat:259:33 sched_setaffinity:203:122 sched_setscheduler:144:119
sched_setparam:142:118 sched_setattr:314:274 setpriority:141:140 ioprio_set:251:30 setuid:105:146 setgid:106:144
setreuid:113:145 setregid:114:143 setresuid:117:147 setresgid:119:149 setgroups:116:159 setfsuid:122:151
setfsgid:123:152 capset:126:91 vmsplice:278:75 modify_ldt:154:- migrate_pages:256:238 move_pages:279:239 mbind:237:235
set_mempolicy:238:237 vhangup:153:58 nfsservctl:180:42 lookup_dcookie:212:18
"""

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def numbers(table: str, machine: str) -> dict[str, int]:
    """Name -> number of the calls of `table` that `machine` ("x86_64" or "aarch64") has."""
    rows = (entry.split(":") for entry in table.split())
    column = 1 + list(AUDIT_ARCH).index(machine)
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}
