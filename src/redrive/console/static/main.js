// Starts everything that a page of the console does by script. Without scripts pages and forms work, too.
import { startCharts } from "./charts.js";
import { startCopying } from "./copy.js";
import { startKeys } from "./keys.js";
import { startLive } from "./live.js";
import { startShell } from "./shell.js";
import { startTheme } from "./theme.js";
import { startTicks } from "./ticks.js";
import { startTimes } from "./times.js";

startTimes();
startCopying();
startTicks();
startShell();
startTheme();
startKeys();
startCharts();
startLive();
