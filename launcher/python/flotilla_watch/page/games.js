// The games that a run keeps, and films of them.
"use strict";

let gamesOf = "";  // which run's are listed
let gamesAsked = 0;
let listing = null;

function nameOfGame(game) {
  return game.evaluation ? `evaluation ${game.evaluation}` : game.kept_as.join(", ");
}

// What the server answers; a no is an Error of its words.
async function ask(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

async function listGames() {
  const run = $("game-run").value;
  if (!run) return;
  const number = ++gamesAsked;
  const rows = [headOf(["kept as", "#step", "#return", "#steps", "end", ""])];
  try {
    const { games, said } = await ask(`/games?run=${encodeURIComponent(run)}`);
    if (number !== gamesAsked) return;
    for (const game of games) {
      const button = make("button", "film");
      button.type = "button";
      button.setAttribute("aria-label", `film of ${nameOfGame(game)}, return ${rate(game.return)}`);
      button.addEventListener("click", () => showFilm(run, game, button));
      rows.push(rowOf([nameOfGame(game), { number: count(game.global_step) }, { number: rate(game.return) }, { number: count(game.steps) }, String(game.end), button]));
    }
    if (games.length === 0) rows.push(rowOf([said]));
  } catch (error) {
    if (number !== gamesAsked) return;
    rows.push(rowOf([error.message]));
  }
  if (run !== gamesOf) {
    $("film").replaceChildren();
    $("game-said").textContent = "";
  }
  gamesOf = run;
  $("game-table").replaceChildren(...rows);
}

function listGamesSoon(run) {
  if ($("game-run").value === run && listing === null) listing = setTimeout(() => { listing = null; listGames(); }, 2000);
}

async function showFilm(run, game, button) {
  button.disabled = true;
  $("game-said").textContent = "playing it again\u2026";
  try {
    const { said, film } = await ask(`/film?run=${encodeURIComponent(run)}&number=${game.number}&step=${game.global_step}`);
    const image = make("img");
    image.src = film;
    image.alt = said;
    $("film").replaceChildren(image);
    $("game-said").textContent = said;
  } catch (error) {
    $("game-said").textContent = error.message;
  }
  button.disabled = false;
}

function fillGameRuns() {
  const choices = table.filter((entry) => !entry.remote).map((entry) => [entry.id, String(entry.run)]);
  const first = $("game-run").options.length === 0;
  if (fillChoices($("game-run"), choices) || (first && choices.length > 0)) listGames();
}
